"""When a lever of EDM cannot know the deviation of what the denoiser sees, said when the phrase is read."""

from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import data_deviation

LOOKED_AT = 64  # pictures


def unmeasured(run: RunSpec, sigma_data: float | None) -> str | None:
    """Why `sigma_data` must be given, with what the first pictures have where they can be had; None: it is known."""
    if data_deviation(run, sigma_data) is not None:
        return None
    pictures = run.data.source.glimpse(run.data.size, LOOKED_AT) if run.encode.codec.stride == 1 else None
    measured = "" if pictures is None else f" (the first {len(pictures)} pictures have {pictures.std() / 127.5:.2f})"
    return (
        f"nobody has measured the deviation of what {run.encode.codec.kind} gives of these pictures{measured}: "
        "write it as sigma_data=..., so that it stands in the run"
    )
