"""A trained run measured: pictures of held-out prompts against the reference, and the held-out loss."""

from collections.abc import Callable
from pathlib import Path

from fulcrum.encode.unknown_words import misread
from fulcrum.measure.card import Measured
from fulcrum.spec.run import RunSpec
from fulcrum.spec.system import Device, System
from fulcrum.study.run.evaluate import Held, measure
from fulcrum.train.painter import Painter
from fulcrum.train.run_folder import RunFolder
from fulcrum.train.session import trained_weights


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
