"""The weights that a run begins from when they are not fresh: an earlier run's, those of a folder, or a stand-in's."""

from pathlib import Path

import torch
from torch import Tensor

from fulcrum.interop.diffusers import require_fit, tensors
from fulcrum.model.adapter import is_beside
from fulcrum.model.init import draw, fan_in
from fulcrum.networks.pretrained.folder import locate
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec, System
from fulcrum.train.build import Context, backbone_of
from fulcrum.train.fillers import START_PARTS
from fulcrum.train.saved.checkpoint import weights_hash
from fulcrum.train.saved.run_folder import RunFolder
from fulcrum.train.saved.trained_weights import trained_weights


def trunk_weights(folder: Path, weights_sha256: str) -> dict[str, Tensor]:
    """What an earlier run ended with, checked against the hash that the new run's description holds."""
    weights = trained_weights(RunFolder(folder))
    held = weights_hash(weights)
    if held != weights_sha256:
        raise BadInput(
            f"the run {folder.name} holds other weights ({held[:12]}) than this run starts from ({weights_sha256[:12]})",
            "train the trunk again, or start from what it holds now",
        )
    return weights


def require_diffusers_fit(path: str, run: RunSpec) -> None:
    """Refuse a folder whose weights do not fit the run's denoiser, from the files' headers alone."""
    with torch.device("meta"):
        backbone = backbone_of(Context(run, 0, System()))
    require_fit(locate(path, START_PARTS), backbone)


def diffusers_weights(path: str) -> dict[str, Tensor]:
    """In fp32, as every denoiser begins here; storing in another type is the run's decision."""
    weights = {name: value.float() for name, value in tensors(locate(path, START_PARTS)).items()}
    for name, value in weights.items():
        if not value.isfinite().all():
            raise BadInput(
                f"the weights that this run would begin from are not finite: '{name}' in {path} holds nan or infinity",
                "they were damaged or never trained well: begin from another model, or an earlier state of this one",
            )
    return weights


def stand_in_weights(ctx: Context) -> dict[str, Tensor]:
    """Every tensor of the denoiser from (seed, its name), uniform within what a layer of the model's width begins with."""
    with torch.device("meta"):
        own = backbone_of(ctx).state_dict()
    within = fan_in(ctx.run.model.width)
    return {name: draw(name, value.shape, within, ctx.seed) for name, value in own.items() if not is_beside(name)}
