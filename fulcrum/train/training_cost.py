"""What a run and its evaluation cost: FLOPs of every part as counted, and one record read along five axes.

B images
"""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fulcrum.cost.codec import tuning_flops
from fulcrum.cost.denoiser import TEXT_TOKENS, newton_schulz_share, training_flops
from fulcrum.data.fillers import told_tokens
from fulcrum.model.counted_flops import counted
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Frozen
from fulcrum.spec.run import RunSpec

BATCH = 8  # images that are counted; the count is exact, so that few are enough
SMALL = 20_000_000  # parameters: a larger network is counted on shapes alone, which takes a second whatever its size


class Trained(Frozen):
    """FLOPs of what every step of training does, for one image."""

    denoiser: float  # forward and backward
    terms: dict[str, float] = {}  # networks of the loss, forward and backward, as their formulas say
    optimizer: float = 0.0  # Muon's iterations; what touches each parameter a few times counts as nothing
    tuned_codec: float = 0.0  # a codec that is trained too, forward and backward
    uncounted: tuple[str, ...] = ()  # a user's terms that give no `flops`

    def training(self) -> float:
        """One image of training; latents, texts and teacher tokens are read from disk."""
        return self.denoiser + sum(self.terms.values()) + self.optimizer + self.tuned_codec


class Parts(Trained):
    """With the frozen networks, which run once per image where their results are kept, and with evaluation."""

    codec: float  # encode
    decode: float
    text: float
    teachers: dict[str, float]
    evaluation: float  # draw and decode a picture, then look at it with features and judge

    def training(self, cached: bool = True) -> float:
        """One image of training; not `cached`: the frozen networks run at every sight."""
        return super().training() + (0.0 if cached else self.codec + self.text + sum(self.teachers.values()))


def count_training(run: RunSpec) -> Trained:
    """By formulas alone, the denoiser's held to a count by the cost law: nothing is built and no data is read."""
    return Trained(
        denoiser=training_flops(run, told_tokens(run.data.source, run.data.caption) or TEXT_TOKENS),
        terms={term.name: float(term.flops(run)) for term in run.terms if hasattr(term, "flops")},
        optimizer=newton_schulz_share(run) * training_flops(run) if run.optim.rule.kind == "muon" else 0.0,
        tuned_codec=tuning_flops(run, run.encode.codec.asset) if run.encode.codec.trained else 0.0,  # type: ignore[attr-defined]
        uncounted=tuple(
            term.name
            for term in run.terms
            if not hasattr(term, "flops") and not type(term).__module__.startswith("fulcrum.")
        ),
    )


def count_parts(run: RunSpec, prompts: Iterable[str], teachers: Mapping[str, Any] | None = None) -> Parts:
    """Every part of a run, the frozen ones counted on their own networks.

    prompts  captions as the run has them: their lengths decide what text costs
    """
    from fulcrum.encode.networks.judge import load_features, load_judge

    words = list(prompts)[:BATCH]
    if len(words) < BATCH:
        raise BadInput(f"counting needs {BATCH} captions, found {len(words)}")
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    pixels = torch.zeros(BATCH, 3, run.data.size, run.data.size)
    images = torch.zeros(BATCH, 3, run.data.size, run.data.size, dtype=torch.uint8)
    features, judge = load_features(), load_judge()

    encode = _each(codec, lambda: codec.encode(pixels))
    decode = _each(codec, lambda: codec.decode(codec.encode(pixels))) - encode
    trained = count_training(run)
    steps = run.sample.steps * (2 if getattr(run.sample.guide, "scale", 1.0) != 1.0 else 1)  # with and without the caption
    drawing = steps * trained.denoiser / 3  # a forward is a third of a training step
    looking = _each(features, lambda: features.features(images)) + _each(judge, lambda: judge.judge(images))
    return Parts(
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


class Spent(Frozen):
    """Where a run stood, along every axis that a comparison may hold equal."""

    steps: int
    images: int
    seconds: float
    flops: float
    money: float | None  # price x time
    images_per_second: float
    share_of_peak: float | None


def axes(
    record: Iterable[Mapping[str, Any]],
    batch: int,
    flops_per_image: float,
    price_per_hour: float | None = None,
    peak: float | None = None,
) -> list[Spent]:
    """The five axes from the lines of record.jsonl (`images`, `seconds`): one run gives them all."""
    found: list[Spent] = []
    for line in record:
        images, seconds = int(line["images"]), float(line["seconds"])
        if found and (images < found[-1].images or seconds < found[-1].seconds):
            raise BadInput(
                f"the record runs backwards at {images} images, {seconds} s",
                "give the lines of one record.jsonl in their order",
            )
        before = found[-1] if found else None
        flops = images * flops_per_image
        since = seconds - (before.seconds if before else 0.0)
        new = images - (before.images if before else 0)
        found.append(
            Spent(
                steps=-(-images // batch),
                images=images,
                seconds=seconds,
                flops=flops,
                money=None if price_per_hour is None else price_per_hour * seconds / 3600,
                images_per_second=new / since if since > 0 else 0.0,
                share_of_peak=None if peak is None or since <= 0 else new * flops_per_image / since / peak,
            )
        )
    return found


def at(spent: list[Spent], axis: str, amount: float) -> float:
    """Images that had been seen when `amount` of an axis was spent, on the line between records."""
    if axis not in Spent.model_fields or not spent:
        raise BadInput(f"no axis is called '{axis}'", "axes: steps, images, seconds, flops, money")
    values = [getattr(one, axis) for one in spent]
    if any(value is None for value in values):
        raise BadInput("money needs a price", "give price_per_hour")
    if not 0 <= amount <= values[-1]:
        raise BadInput(f"{amount:g} of {axis} lies outside the record, which ends at {values[-1]:g}")
    return float(np.interp(amount, [0.0, *values], [0.0, *(float(one.images) for one in spent)]))


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
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return found if sys.platform == "darwin" else found * 1024
