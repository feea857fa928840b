"""The weights that a run begins from when they come from diffusers: refused before anything is made, read when needed."""

import torch
from torch import Tensor

from fulcrum.encode.pretrained.folder import locate
from fulcrum.interop.diffusers import require_fit, tensors
from fulcrum.model.backbone import Backbone
from fulcrum.spec.route import route_of
from fulcrum.spec.run import RunSpec
from fulcrum.train.build import Context, shape_of
from fulcrum.train.fillers import START_PARTS, DiffusersStart


def require_start(run: RunSpec) -> None:
    """Refuse starting weights that do not fit, from the files' headers alone."""
    if not isinstance(run.start, DiffusersStart):
        return
    with torch.device("meta"):
        route = route_of(run).build(Context(run, 0, None))  # type: ignore[arg-type]
        backbone = Backbone(channels=run.encode.codec.channels, **shape_of(run), route=route)
    require_fit(locate(run.start.path, START_PARTS), backbone)


def diffusers_weights(start: DiffusersStart) -> dict[str, Tensor]:
    """In fp32, as every denoiser begins here; storing in another type is the run's decision."""
    return {name: value.float() for name, value in tensors(locate(start.path, START_PARTS)).items()}
