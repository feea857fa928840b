"""A trained run measured: pictures of held-out prompts against the reference, and the held-out loss."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fulcrum.measure.card import JUDGED, Measured
from fulcrum.networks.text import misread
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import Device, RunSpec, System
from fulcrum.study.run.measuring.run_evaluation import Held, measure
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.start_weights import trained_weights


def measure_run(
    folder: RunFolder,
    run: RunSpec,
    samples: int,
    cache: Path,
    judges: tuple[str, ...],
    device: Device,
    say: Callable[[str], None],
    drawn: Callable[[int], None] | None,
) -> dict[str, Measured]:
    """Every metric with its card; `judges` name networks besides the embedded one, `drawn` hears of the progress."""
    weights, system = trained_weights(folder), System(device=device)
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    measured = measure(run, Painter(run, weights, codec, text, system), cache, samples, drawn, judges)
    measured["validation_loss"] = Held(run, codec, text, cache, system).loss(weights).measured()
    for line in misread(text):
        say(line)
    return measured


def judges_among(features: Sequence[str]) -> tuple[str, ...]:
    """Networks that are asked of a run's pictures besides the embedded one, which always is."""
    strange = [name for name in features if name not in (*JUDGED, "embedded")]
    if strange:
        raise BadInput(
            f"a run is measured by its own metrics and {', '.join(JUDGED)}, not by {strange[0]}",
            "draw pictures first: fulcrum sample; then fulcrum measure PICTURES REFERENCE",
        )
    return tuple(name for name in features if name != "embedded")
