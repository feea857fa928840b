"""What of a run has no place in a pipeline of diffusers: where in its description, and why. No torch."""

from collections.abc import Iterable
from typing import NamedTuple

from fulcrum.interop.diffusers import pipeline_of
from fulcrum.spec.edit import inside
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import route_of
from fulcrum.spec.words import in_brief

CODECS = ("AutoencoderKL", "AutoencoderDC")  # of pretrained ones, those whose latents PRXPipeline scales as we do


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
        misfits.append(Misfit("encode.codec", "PRXPipeline makes pictures through a codec only, and this run has none"))
    if getattr(run.encode.codec, "path", "") and (network := getattr(run.encode.codec, "network", "")) not in CODECS:
        misfits.append(Misfit("encode.codec", f"PRXPipeline does not undo how the latents of {network} are normalised"))
    if route_of(run).fuses:
        misfits.append(Misfit("model.route", "diffusers' PRX has no layer that joins routed tokens with the others"))
    if run.model.condition.kind not in ("no_condition", "resolution"):
        misfits.append(Misfit("model.condition", f"diffusers' PRX is not told {run.model.condition.kind}"))
    if not float(run.model.theta).is_integer():
        misfits.append(Misfit("model.theta", f"diffusers' PRX takes a whole theta, and this run's is {run.model.theta}"))
    guide = run.sample.guide
    if guide.kind != "cfg":
        misfits.append(
            Misfit("sample.guide", f"diffusers guides away from the empty prompt only, not by {in_brief(guide)}")
        )
    elif (scale := getattr(guide, "scale", 1.0)) < 1:
        misfits.append(Misfit("sample.guide", f"diffusers refuses a guidance below 1, and this run's is {scale:g}"))
    return misfits


def require_slots(run: RunSpec, levers: Iterable[object]) -> None:
    """Refuse a run that no pipeline draws; of its levers those are named that touch what does not fit."""
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
    touched = getattr(getattr(lever, "lever", lever), "touches", ())  # a staged lever holds the lever
    return any(inside(path, (place,)) or inside(place, (path,)) for place in touched)
