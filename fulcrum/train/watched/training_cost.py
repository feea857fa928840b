"""What a run and its evaluation cost: FLOPs of every part, counted on its networks, and what this machine can give.

B images
"""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fulcrum.data.fillers import caption_tokens
from fulcrum.model.counted_flops import counted
from fulcrum.networks.codec_flops import tuning_flops
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import (
    TEXT_TOKENS,
    PartFlops,
    TrainingFlops,
    denoiser_training_flops,
    drawing_flops,
    newton_schulz_share,
)
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, phases

BATCH = 8  # images that are counted; the count is exact, so that few are enough
SMALL = 20_000_000  # parameters: a larger network is counted on shapes alone, which takes a second whatever its size


def count_training(run: RunSpec, text: float | None = None) -> TrainingFlops:
    """By formulas alone, the denoiser's held to a count by the cost law: nothing is built and no data is read. `text`:
    tokens of a caption, if not those of the world's."""
    return TrainingFlops(
        denoiser=denoiser_training_flops(run, text or caption_tokens(run.data.source, run.data.caption) or TEXT_TOKENS),
        terms=_term_flops(run),
        optimizer=newton_schulz_share(run) * denoiser_training_flops(run) if run.optim.rule.kind == "muon" else 0.0,
        tuned_codec=tuning_flops(run, run.encode.codec.asset) if run.encode.codec.trained else 0.0,  # type: ignore[attr-defined]
        uncounted=tuple(
            term.name
            for term in _all_terms(run).values()
            if not hasattr(term, "flops") and not type(term).__module__.startswith("fulcrum.")
        ),
    )


def _term_flops(run: RunSpec) -> dict[str, float]:
    """Of every term for one image: where a stage adds it, on average over the budget."""

    def there(phase: RunSpec) -> dict[str, float]:
        return {term.name: float(term.flops(phase)) for term in phase.terms if hasattr(term, "flops")}

    def of_phase(phase: RunSpec, name: str) -> float:
        return there(phase).get(name, 0.0)

    staged = {name for phase in phases(run) for name in there(phase.run)} - {term.name for term in run.terms}
    return there(run) | {name: mean_over_images(run, partial(of_phase, name=name)) for name in sorted(staged)}


def _all_terms(run: RunSpec) -> dict[str, Any]:
    """Those that the run has from the start, and those that a stage adds."""
    return {term.name: term for one in (run, *(phase.run for phase in phases(run))) for term in one.terms}


def count_parts(run: RunSpec, prompts: Iterable[str], teachers: Mapping[str, Any] | None = None) -> PartFlops:
    """Every part of a run, the frozen ones counted on their own networks.

    prompts  captions as the run has them: their lengths decide what text costs
    """
    from fulcrum.networks.judges import load_features, load_judge, load_second_judge

    words = list(prompts)[:BATCH]
    if len(words) < BATCH:
        raise BadInput(f"counting needs {BATCH} captions, found {len(words)}")
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    pixels = torch.zeros(BATCH, 3, run.data.size, run.data.size)
    images = torch.zeros(BATCH, 3, run.data.size, run.data.size, dtype=torch.uint8)
    features, judges = load_features(), (load_judge(), load_second_judge())

    encode = _each(codec, lambda: codec.encode(pixels))
    decode = _each(codec, lambda: codec.decode(codec.encode(pixels))) - encode
    trained = count_training(run)
    steps = run.sample.steps * (2 if getattr(run.sample.guide, "scale", 1.0) != 1.0 else 1)  # with and without the caption
    drawing = steps * drawing_flops(run, caption_tokens(run.data.source, run.data.caption) or TEXT_TOKENS)
    looking = _each(features, lambda: features.features(images))
    looking += sum(_each(judge, lambda judge=judge: judge.judge(images)) for judge in judges)  # type: ignore[misc]
    return PartFlops(
        **dict(trained),
        codec=encode,
        decode=decode,
        text=_each(text, lambda: text.encode(words)),
        teachers={name: _each(one, lambda one=one: one.tokens(pixels)) for name, one in (teachers or {}).items()},  # type: ignore[misc]
        evaluation=drawing + decode + looking,
    )


@torch.no_grad()
def _each(network: Any, function: Callable[[], Any]) -> float:
    """FLOPs for one of the BATCH images that `function` puts through the network."""
    if sum(one.numel() for one in network.parameters()) > SMALL:
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return counted(function) / BATCH
        except Exception:  # somewhere it looks at its numbers: then they have to be there
            pass
    return counted(function) / BATCH


def measured_peak(side: int = 1024, rounds: int = 5) -> float:
    """FLOP/s of the best of some square fp32 products: what this machine gives with the threads that torch may use."""
    a, b = torch.randn(side, side), torch.randn(side, side)
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - begun)
    return 2.0 * side**3 / best


def peak_memory() -> int:
    """Bytes at the peak so far: of the device where one is used, else of this process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # no Linux; there, getrusage would count the process that started this one
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
