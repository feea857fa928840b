"""Our denoiser as diffusers' PRXTransformer2DModel, and back."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from fulcrum.files.atomic import atomic_path, write_atomic
from fulcrum.files.sealed import read_json
from fulcrum.networks.pretrained.folder import weight_files
from fulcrum.spec.edit import inside
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import route_of
from fulcrum.spec.words import in_brief
from fulcrum.training.model.adapter import is_beside, merged
from fulcrum.training.model.transformer import Backbone

# --------------------------------------------------------------------------------------------------
# Our denoiser as a folder of diffusers' PRXTransformer2DModel, and back. The names are the same: it
# is a copy.


CONFIG, WEIGHTS = "config.json", "diffusion_pytorch_model.safetensors"
MADE_FOR = "0.42.1"  # the diffusers version whose config this is
FIXED = {"time_factor": 1000.0, "time_max_period": 10_000}  # what our denoiser does not vary
SLOTS = {
    "in_channels": "channels",
    "patch_size": "patch",
    "context_in_dim": "text_width",
    "hidden_size": "width",
    "mlp_ratio": "mlp_ratio",
    "num_heads": "heads",
    "depth": "depth",
    "axes_dim": "axes",
    "theta": "theta",
    "bottleneck_size": "bottleneck",
    "resolution_embeds": "resolution",
}  # diffusers' word -> ours

PIXEL_FLOOR = 0.05  # of t, written into PRXPixelPipeline


def pipeline_of(run: RunSpec) -> str:
    """The diffusers pipeline that draws with this run's denoiser as it is meant; a run that none
    can draw is refused.

    PRXPipeline takes the output for a velocity and starts from unit noise; PRXPixelPipeline takes
    it for the clean picture, has no codec, and its noise has a scale.
    """
    predict, scale = run.flow.predict, run.flow.noise_scale
    if predict.kind == "velocity" and scale == 1:
        return "PRXPipeline"
    if (
        predict.kind == "x"
        and run.encode.codec.kind == "pixels"
        and getattr(predict, "floor", None) == PIXEL_FLOOR
    ):
        return "PRXPixelPipeline"
    raise BadInput(
        f"no pipeline of diffusers can draw this run: its output is {predict}, on"
        f" {run.encode.codec.kind}, with noise of scale {scale:g}",
        "diffusers knows a velocity with noise of scale 1 (PRXPipeline), and x-prediction of"
        f" pixels with floor {PIXEL_FLOOR:g} (PRXPixelPipeline); draw with fulcrum sample",
    )


def export(backbone: Backbone, folder: Path, dtype: torch.dtype | None = None) -> Path:
    """Write config.json and the weights, rounded to `dtype` if it is given; what diffusers has no
    slot for is refused, not dropped."""
    sizes = {slot: getattr(backbone, slot) for slot in SLOTS.values()}
    with torch.device("meta"):
        plain = set(Backbone(**sizes).state_dict())
    own = merged(backbone.state_dict())
    stray = sorted(set(own) - plain)
    if stray or backbone.own_condition is not None:
        raise BadInput(
            f"diffusers' PRX has no slot for {', '.join(stray[:3]) or 'this condition'}",
            "train without the part that made it, or draw with fulcrum",
        )
    if not float(backbone.theta).is_integer():
        raise BadInput(
            f"diffusers' PRX takes a whole theta, found {backbone.theta}",
            "rounded, it would draw other pictures: draw with fulcrum",
        )
    config = {
        "_class_name": "PRXTransformer2DModel",
        "_diffusers_version": MADE_FOR,
        **FIXED,
        **{word: sizes[slot] for word, slot in SLOTS.items()},
    }
    config |= {"axes_dim": list(backbone.axes), "theta": int(backbone.theta)}
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().cpu().to(dtype or value.dtype).contiguous()
        for name, value in own.items()
    }
    with atomic_path(folder / WEIGHTS) as aside:
        save_file(weights, aside, metadata={"format": "pt"})
    write_atomic(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
    return folder


def load(folder: Path) -> Backbone:
    """A backbone with the sizes and weights of a PRX transformer folder."""
    config = _config(folder / CONFIG)
    sizes: dict[str, Any] = {
        slot: config[word] for word, slot in SLOTS.items() if config.get(word) is not None
    }
    try:
        backbone = Backbone(**(sizes | ({"axes": tuple(sizes["axes"])} if "axes" in sizes else {})))
    except ValueError as error:
        raise BadInput(f"{folder / CONFIG}: {error}", "the config was changed by hand") from None
    weights, own = tensors(folder), backbone.state_dict()
    wrong = sorted(
        name
        for name in own.keys() | weights.keys()
        if name not in own or name not in weights or own[name].shape != weights[name].shape
    )
    if wrong:
        raise BadInput(
            f"the weights do not fit the config: {len(wrong)} tensors differ, such as {wrong[0]}",
            "the folder was put together from two models",
        )
    backbone.load_state_dict(weights)
    return backbone


def tensors(folder: Path) -> dict[str, Tensor]:
    """Every weight of a folder, from one file or from the shards of an index."""
    weights: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            weights |= load_file(path) if path.suffix == ".safetensors" else {}
        except (OSError, SafetensorError) as error:
            raise BadInput(
                f"{path} cannot be read: {error}", "expected safetensors beside config.json"
            ) from None
    return weights


def require_fit(folder: Path, backbone: Backbone) -> None:
    """A backbone (it may be on the meta device) can begin with a folder's weights, or the first
    thing that differs."""
    config, shapes = _config(folder / CONFIG), _shapes(folder)
    own = {
        name: tuple(value.shape)
        for name, value in backbone.state_dict().items()
        if not is_beside(name)
    }
    for name in sorted(
        own.keys() | shapes.keys(), key=lambda name: (not (name in own and name in shapes), name)
    ):
        if own.get(name) != shapes.get(name):
            raise BadInput(
                f"'{name}' is {_words(shapes.get(name))} in {folder}, {_words(own.get(name))} in"
                " this model",
                "give the run the sizes of that model (model.width, depth, heads, patch, the"
                " codec's channels, the text's width), or start from another",
            )
    for word, slot in SLOTS.items():
        pair = (config.get(word), getattr(backbone, slot))
        written, own_value = (tuple(value) if isinstance(value, list) else value for value in pair)
        if written is not None and written != own_value:
            raise BadInput(
                f"{folder / CONFIG} says {word} = {written}, this model has {own_value}: equal"
                " shapes, another meaning",
                "give the run the sizes of that model",
            )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, without reading them."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        if path.suffix != ".safetensors":
            continue
        try:
            with safe_open(path, framework="pt") as file:
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise BadInput(
                f"{path} cannot be read: {error}", "expected safetensors beside config.json"
            ) from None
    return shapes


def _words(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else f"of shape {shape}"


def _config(path: Path) -> dict[str, Any]:
    config = read_json(path, "expected the folder of a PRXTransformer2DModel")
    if config.get("_class_name") != "PRXTransformer2DModel":
        raise BadInput(
            f"{path} does not describe a PRXTransformer2DModel", "other denoisers cannot be read"
        )
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise BadInput(
                f"{path} says {name} = {config[name]}, our denoiser has {value}",
                "such a model cannot be read",
            )
    return config


# --------------------------------------------------------------------------------------------------
# What of a run has no place in a pipeline of diffusers: where in its description, and why. No
# torch.


# of pretrained ones, those whose latents PRXPipeline scales as we do
CODECS = ("AutoencoderKL", "AutoencoderDC")


class Misfit(NamedTuple):
    path: str  # in the run's description
    why: str


def misfits(run: RunSpec) -> list[Misfit]:
    """All that keeps a run from being drawn elsewhere as it is drawn here."""
    misfits = []
    try:
        pipeline_of(run)
    except BadInput as error:
        misfits.append(Misfit("flow.predict", error.message))
    if run.encode.codec.kind == "pixels" and run.flow.predict.kind == "velocity":
        misfits.append(
            Misfit(
                "encode.codec",
                "PRXPipeline makes pictures through a codec only, and this run has none",
            )
        )
    if (
        getattr(run.encode.codec, "path", "")
        and (network := getattr(run.encode.codec, "network", "")) not in CODECS
    ):
        misfits.append(
            Misfit(
                "encode.codec",
                f"PRXPipeline does not undo how the latents of {network} are normalised",
            )
        )
    if route_of(run).fuses:
        misfits.append(
            Misfit(
                "model.route",
                "diffusers' PRX has no layer that joins routed tokens with the others",
            )
        )
    if run.model.condition.kind not in ("no_condition", "resolution"):
        misfits.append(
            Misfit("model.condition", f"diffusers' PRX is not told {run.model.condition.kind}")
        )
    if not float(run.model.theta).is_integer():
        misfits.append(
            Misfit(
                "model.theta",
                f"diffusers' PRX takes a whole theta, and this run's is {run.model.theta}",
            )
        )
    guide = run.sample.guide
    if guide.kind != "cfg":
        misfits.append(
            Misfit(
                "sample.guide",
                f"diffusers guides away from the empty prompt only, not by {in_brief(guide)}",
            )
        )
    elif (scale := getattr(guide, "scale", 1.0)) < 1:
        misfits.append(
            Misfit(
                "sample.guide", f"diffusers refuses a guidance below 1, and this run's is {scale:g}"
            )
        )
    return misfits


def require_slots(run: RunSpec, levers: Iterable[object]) -> None:
    """Refuse a run that no pipeline draws; of its levers those are named that touch what does not
    fit."""
    wrong = misfits(run)
    if not wrong:
        return
    lines = []
    for path, why in wrong:
        names = [str(lever) for lever in levers if _touches(lever, path)]
        lines.append(f"{why} ({path}{', by ' + ', '.join(names) if names else ''})")
    raise BadInput(
        "no pipeline of diffusers draws this run: " + "; ".join(lines),
        "train without it, or draw with fulcrum sample",
    )


def _touches(lever: object, path: str) -> bool:
    # a staged lever holds the lever
    touched = getattr(getattr(lever, "lever", lever), "touches", ())
    return any(inside(path, (place,)) or inside(place, (path,)) for place in touched)
