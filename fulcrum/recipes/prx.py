"""The published models in latents at 256 px, exact in size and settings; they want GPUs, and parts that do not ship.

Nothing of their size was ever run here: time, memory and price are computed (docs/estimate.md).
"""

from fulcrum.data.fillers import OneStyle, World
from fulcrum.networks.fillers import FolderCodec, FolderTeacher, FolderText
from fulcrum.spec.edit import put
from fulcrum.spec.run import Budget, Data, Encode, Flow, Model, Optim, Precision, RunSpec, Sample
from fulcrum.training.fillers import Fresh, NoAverage
from fulcrum.training.flow.fillers import CFG, EvenWeight, LogitNormal, Velocity
from fulcrum.training.loss.fillers import Alignment, FlowMatching
from fulcrum.training.model.fillers import Dense, NoCondition
from fulcrum.training.optim.fillers import AdamWRule


def prx_256() -> RunSpec:
    """The published baseline at 256 px: FLUX.1's latents, T5Gemma's texts, AdamW, 1,170,691,648 parameters.

    torchrun --nproc-per-node 8 -m fulcrum train prx_256 --device cuda --set "data.source=folder(path='STORE')"
    --set encode.codec.path=CODEC --set encode.text.path=TEXT

    Computed, never run: 1,000,000 pictures are encoded in 1.2 h on 8xH100 and trained on in 6.6 h on 8xH100; 17 of 80 GB a
    GPU; 125 $ at 2.00 $ an hour and GPU, of which 20 $ for encoding.
    """
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


def prx_256_flux2() -> RunSpec:
    """The same on the 32 channels of FLUX.2's autoencoder, read through its own class.

    torchrun --nproc-per-node 8 -m fulcrum train prx_256_flux2 --device cuda --set "data.source=folder(path='STORE')"
    --set encode.codec.path=CODEC --set encode.text.path=TEXT

    Computed, never run: 1,000,000 pictures are encoded in 1.2 h on 8xH100 and trained on in 6.6 h on 8xH100; 17 of 80 GB a
    GPU; 125 $ at 2.00 $ an hour and GPU, of which 20 $ for encoding.
    """
    codec = FolderCodec(name="FLUX.2 AutoencoderKLFlux2", stride=8, channels=32, network="AutoencoderKLFlux2")
    return put(prx_256(), "encode.codec", codec)


def prx_256_repa_e() -> RunSpec:
    """REPA-E's frozen autoencoder with alignment to DINOv3 ViT-L to the last step: two changes, as published.

    torchrun --nproc-per-node 8 -m fulcrum train prx_256_repa_e --device cuda --set "data.source=folder(path='STORE')"
    --set encode.codec.path=CODEC --set encode.text.path=TEXT --set encode.teachers.dinov3.path=TEACHER

    Computed, never run: 1,000,000 pictures are encoded in 1.4 h on 8xH100 and trained on in 6.6 h on 8xH100; 17 of 80 GB a
    GPU; 128 $ at 2.00 $ an hour and GPU, of which 22 $ for encoding.
    """
    codec = FolderCodec(name="REPA-E e2e-flux-vae", stride=8, channels=16, network="AutoencoderKL")
    return aligned(put(prx_256(), "encode.codec", codec), token=16)


def aligned(run: RunSpec, token: int, until: float = 1.0) -> RunSpec:
    """With alignment to DINOv3 ViT-L, weight 0.5, whose tokens cover `token` pixels as the denoiser's do."""
    run = put(run, "encode.teachers", (FolderTeacher(name="dinov3", patch=token, width=1024),))
    return put(run, "terms.alignment", Alignment(teacher="dinov3", until=until))
