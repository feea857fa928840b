"""The published models that see pixels, exact in size and settings as far as those were published.

Nothing of their size was ever run here: time, memory and price are computed (docs/estimate.md).
"""

from fulcrum.networks.fillers import FolderText, Pixels
from fulcrum.recipes.prx import aligned, prx_256
from fulcrum.spec.edit import during, put, put_all
from fulcrum.spec.run import Budget, RunSpec
from fulcrum.training.fillers import EMA
from fulcrum.training.flow.fillers import LogitNormal, XPrediction
from fulcrum.training.loss.fillers import VGGLPIPS
from fulcrum.training.model.fillers import Carry, Resolution
from fulcrum.training.optim.fillers import MuonRule

SMALL = 100_000 * 1024  # images of the speed run at 512 px; then 20,000 steps of 512 at 1024 px
LARGE = 20_000 * 512


def prx_pixels_1024() -> RunSpec:
    """The published baseline at 1024 px without an autoencoder: patches of 32, 1,177,215,744 parameters.

    torchrun --nproc-per-node 8 -m fulcrum train prx_pixels_1024 --device cuda --set "data.source=folder(path='STORE')"
    --set encode.text.path=TEXT

    Computed, never run: 1,000,000 pictures are encoded in 58 min on 8xH100 and trained on in 14.5 h on 8xH100; 55 of 80 GB
    a GPU; 247 $ at 2.00 $ an hour and GPU, of which 15 $ for encoding.
    """
    run = prx_256()
    run = put(run, "model", run.model.model_copy(update={"patch": 32, "bottleneck": 256}))
    run = put(put(run, "encode.codec", Pixels()), "data.size", 1024)
    run = put(put(run, "flow.predict", XPrediction()), "flow.time", LogitNormal(shift=3.0))
    return put(run, "sample.shift", 3.0)


def prx_7b() -> RunSpec:
    """The published 7 B pixel model: width 3584, 24 blocks, patches of 16, Qwen3-VL's texts, noise of twice the scale.

    torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m fulcrum train prx_7b
    --device cuda --mesh 8x8 --microbatch 1 --out SHARED --set "data.source=folder(path='STORE')"
    --set encode.text.path=TEXT

    Computed, never run: 1,000,000 pictures are encoded in 41 min on 8xH100 and trained on in 30.0 h on 64xH100; 58 of 80 GB
    a GPU, 1 of 4 rows at a time; 3,851 $ at 2.00 $ an hour and GPU, of which 11 $ for encoding.

    How long and on what it was trained is not published: the budget is that of the 1.2 B models.
    """
    run = prx_pixels_1024()
    sizes = {"width": 3584, "depth": 24, "heads": 28, "patch": 16, "bottleneck": 768, "condition": Resolution()}
    return put_all(
        run,
        [
            ("model", run.model.model_copy(update=sizes)),
            ("encode.text", FolderText(name="Qwen3-VL text model", width=2048)),
            ("flow.noise_scale", 2.0),
        ],
    )


def speedrun_24h() -> RunSpec:
    """The published 24-hour run: 512 px with alignment, then 1024 px; TREAD, LPIPS through VGG, Muon, an average.

    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m fulcrum train speedrun_24h
    --device cuda --mesh 4x8 --microbatch 16 --out SHARED --set "data.source=folder(path='STORE')"
    --set encode.text.path=TEXT --set encode.teachers.dinov3.path=TEACHER

    Computed, never run: 8,700,000 pictures are encoded in 9.7 h on 8xH200 and trained on in 9.4 h on 32xH200; 87 of 141 GB
    a GPU, 16 of 32 rows at a time; 759 $ at 2.00 $ an hour and GPU, of which 156 $ for encoding.

    Three things differ from print. A run has one batch: the 20,000 steps of 512 images at the end are 10,000 of 1,024.
    The term of DINO's features (0.01) is left out, as ours looks through the embedded teacher only. Pictures are your own.
    VGG comes from a package, of the group `judges` (docs/extras.md).
    """
    until = SMALL / (SMALL + LARGE)
    run = prx_pixels_1024()
    run = put_all(
        run,
        [
            ("data.source", run.data.source.model_copy(update={"count": 8_700_000})),
            ("budget", Budget(images=SMALL + LARGE, batch=1024)),
            ("model.route", Carry()),
            ("optim.rule", MuonRule()),
            ("average", EMA(half_life=0.063)),  # 0.999 every 10 steps
            ("terms.lpips", VGGLPIPS()),
        ],
    )
    run = aligned(run, token=32, until=until)
    return during(during(run, 0.0, until, "data.size", 512), 0.0, until, "flow.time.scale", 0.5)
