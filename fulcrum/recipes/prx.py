"""The published full-size models, exact in size and settings; they want GPUs and parts that do not travel with us.

fulcrum train prx_256 --set encode.codec.path=FOLDER --set encode.text.path=FOLDER      (docs/pretrained.md)

1,170,691,648 parameters for prx_256 and 1,177,215,744 for prx_pixels_1024
"""

from fulcrum.data.fillers import OneStyle, World
from fulcrum.encode.fillers import FolderCodec, FolderText, Pixels
from fulcrum.flow.fillers import CFG, EvenWeight, LogitNormal, Velocity, XPrediction
from fulcrum.loss.fillers import FlowMatching
from fulcrum.model.fillers import Dense, NoCondition
from fulcrum.optim.fillers import AdamWRule
from fulcrum.spec.edit import put
from fulcrum.spec.run import Budget, Data, Encode, Flow, Model, Optim, Precision, RunSpec, Sample
from fulcrum.train.fillers import Fresh, NoAverage


def prx_256() -> RunSpec:
    return RunSpec(
        data=Data(source=World(domain="synthetic", count=1_000_000), caption=OneStyle(style="long"), size=256),
        encode=Encode(
            codec=FolderCodec(name="FLUX.1 AutoencoderKL", stride=8, channels=16, network="AutoencoderKL"),
            text=FolderText(name="T5Gemma 2B-2B UL2 encoder", width=2304),
        ),
        flow=Flow(time=LogitNormal(), predict=Velocity(), weight=EvenWeight()),
        model=Model(width=1792, depth=16, heads=28, patch=2, route=Dense(), condition=NoCondition()),
        terms=(FlowMatching(),),
        optim=Optim(rule=AdamWRule(), lr=1e-4, clip=0.2, warmup=0.01, decay=0.0),
        precision=Precision(compute="bf16"),
        average=NoAverage(),
        start=Fresh(),
        sample=Sample(steps=50, guide=CFG(scale=3.5), prompts=OneStyle(style="long")),
        budget=Budget(images=100_000 * 256, batch=256),
    )


def prx_pixels_1024() -> RunSpec:
    run = prx_256()
    run = put(run, "model", run.model.model_copy(update={"patch": 32, "bottleneck": 256}))
    run = put(put(run, "encode.codec", Pixels()), "data.size", 1024)
    run = put(put(run, "flow.predict", XPrediction()), "flow.time", LogitNormal(shift=3.0))
    return put(run, "sample.shift", 3.0)
