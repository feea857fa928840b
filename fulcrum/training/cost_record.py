"""What a run has cost: FLOPs of every part, time, and what its sessions wrote down."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fulcrum.data.fillers import caption_tokens
from fulcrum.files.atomic import write_json
from fulcrum.files.paths import reason
from fulcrum.files.sealed import read_json, read_tail, sha256_json
from fulcrum.networks.codec_flops import tuning_flops
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.flops import (
    TEXT_TOKENS,
    PartFlops,
    TrainingFlops,
    amount,
    denoiser_training_flops,
    drawing_flops,
    newton_schulz_share,
)
from fulcrum.spec.progress import clock
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, phases, terms_of
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import Observer, StepReport
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.observers import Every
from fulcrum.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------
# What a run and its evaluation cost: FLOPs of every part, counted on its networks, and what this
# machine can give.
#
# B images


BATCH = 8  # images that are counted; the count is exact, so that few are enough
# parameters: a larger network is counted on shapes alone, which takes a second whatever its size
SMALL = 20_000_000


def count_training(run: RunSpec, text: float | None = None) -> TrainingFlops:
    """By formulas alone, the denoiser's held to a count by the cost law: nothing is built and no
    data is read. `text`: tokens of a caption, if not those of the world's."""
    return TrainingFlops(
        denoiser=denoiser_training_flops(
            run, text or caption_tokens(run.data.source, run.data.caption) or TEXT_TOKENS
        ),
        terms=_term_flops(run),
        optimizer=(
            newton_schulz_share(run) * denoiser_training_flops(run)
            if run.optim.rule.kind == "muon"
            else 0.0
        ),
        tuned_codec=tuning_flops(run, run.encode.codec.asset) if run.encode.codec.trained else 0.0,  # type: ignore[attr-defined]
        uncounted=tuple(
            term.name
            for term in terms_of(run).values()
            if term.flops(run) is None and not type(term).__module__.startswith("fulcrum.")
        ),
    )


def _term_flops(run: RunSpec) -> dict[str, float]:
    """Of every term for one image: where a stage adds it, on average over the budget."""

    def there(phase: RunSpec) -> dict[str, float]:
        return {
            term.name: float(flops)
            for term in phase.terms
            if (flops := term.flops(phase)) is not None
        }

    def of_phase(phase: RunSpec, name: str) -> float:
        return there(phase).get(name, 0.0)

    staged = {name for phase in phases(run) for name in there(phase.run)} - {
        term.name for term in run.terms
    }
    return there(run) | {
        name: mean_over_images(run, partial(of_phase, name=name)) for name in sorted(staged)
    }


def count_parts(
    run: RunSpec, prompts: Iterable[str], teachers: Mapping[str, Any] | None = None
) -> PartFlops:
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
    # with and without the caption
    steps = run.sample.steps * (2 if getattr(run.sample.guide, "scale", 1.0) != 1.0 else 1)
    drawing = steps * drawing_flops(
        run, caption_tokens(run.data.source, run.data.caption) or TEXT_TOKENS
    )
    looking = _each(features, lambda: features.features(images))
    looking += sum(_each(judge, lambda judge=judge: judge.judge(images)) for judge in judges)  # type: ignore[misc]
    return PartFlops(
        **dict(trained),
        codec=encode,
        decode=decode,
        text=_each(text, lambda: text.encode(words)),
        teachers={
            name: _each(one, lambda one=one: one.tokens(pixels))  # type: ignore[misc]
            for name, one in (teachers or {}).items()
        },
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
    """FLOP/s of the best of some square fp32 products: what this machine gives with the threads
    that torch may use."""
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
        return next(
            int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")
        )
    # no Linux; there, getrusage would count the process that started this one
    except (OSError, StopIteration):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


# --------------------------------------------------------------------------------------------------
# What one run has cost, by part and along every axis: from its description, its record, and what
# its session wrote down.
#
# What depends on the machine (peak memory, what the processor can do at most) is written to
# cost.json when a run ends; what does not is counted when it is asked for, and kept in the cache. A
# price is nobody's but the reader's: it is never stored.


VERSION = 2  # of what is counted: older entries of the cache are not read
END_OF_RECORD = 1 << 20  # bytes in which the last good line of a record is looked for


class Peaks(NamedTuple):
    """What only the process that trained knows."""

    peak_memory: int  # bytes
    peak_flops: float  # FLOP/s of its best fp32 product

    @classmethod
    def now(cls) -> "Peaks":
        return cls(peak_memory(), measured_peak())


class Counted(NamedTuple):
    parts: PartFlops
    pictures: int  # that frozen networks look at once


def sessions(built: Built, folder: RunFolder, state: State) -> list[Observer]:
    """What `perform` takes as observers: writes down the machine's side of the bill with the last
    step.

    A resumed run tells of its last session, many processes of the first one.
    """

    def end(report: StepReport) -> None:
        try:
            write_json(folder.path / "cost.json", Peaks.now()._asdict())
        # the run is trained by now, and a bill without this is still one
        except OSError as error:
            built.feed.tell(
                f"cannot write {folder.path / 'cost.json'}: {reason(error)}; the machine's cost is"
                " not kept"
            )

    return [Every(built.run.budget.images, end, at_end=True)] if built.ranks.first else []


def count_costs(run: RunSpec, cache: Path) -> Counted:
    """FLOPs of every part of a run, for one image. The same run is counted once."""
    path = cache / "flops" / f"{sha256_json([VERSION, run.plain()], 32)}.json"
    try:
        kept = read_json(path, "")
        return Counted(PartFlops.model_validate(kept["parts"]), int(kept["pictures"]))
    except (FulcrumError, ValueError, KeyError, TypeError):
        pass  # not counted yet, or damaged
    feed = Feed(run, 0, cache)
    pictures, captions = feed.sight(BATCH)
    parts = count_parts(run, [captions[k % len(captions)] for k in range(BATCH)], feed.teachers())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"parts": parts.model_dump(mode="json"), "pictures": pictures})
    return Counted(parts, pictures)


def of_arm(run: RunSpec, cache: Path, drawn: int) -> dict[str, float]:
    """FLOPs of one cell of a study, by part; `drawn` pictures are judged along the way. Empty when
    it cannot be counted."""
    try:
        parts, pictures = count_costs(run, cache)
        return parts.totals(run.budget.images, pictures, drawn)
    except Exception:  # a user's part: the study has its results without this
        return {}


def bill(
    folder: RunFolder, run: RunSpec, cache: Path, price: float | None = None
) -> dict[str, Any]:
    """The `cost` of a run, as far as it has come."""
    if price is not None and not 0 <= price < 1e9:
        raise BadInput(
            f"a price of {price:g} per hour", "give what an hour of the machine costs, such as 2.5"
        )
    lines = [
        line
        for line in read_tail(folder.record, END_OF_RECORD)
        if {"images", "seconds"} <= set(line)
    ]
    result = folder.result() or {}
    if not lines:
        return {}
    seen = int(lines[-1]["images"])
    (parts, pictures), peaks = count_costs(run, cache), _peaks(folder)
    seconds, images = (
        float(result.get("seconds", lines[-1]["seconds"])),
        int(result.get("images", seen)),
    )
    speed = images / max(seconds, 1e-9)
    return {
        "steps": -(-seen // run.budget.batch),
        "images": images,
        "seconds": seconds,
        "flops": seen * parts.training(),
        "money": None if price is None else price * seconds / 3600,
        "price_per_hour": price,
        "images_per_second": round(speed, 2),
        "share_of_peak": round(speed * parts.training() / peaks.peak_flops, 4) if peaks else None,
        "peak_flops": peaks.peak_flops if peaks else None,
        "peak_memory": peaks.peak_memory if peaks else None,
        "parts": parts.totals(images, pictures),
        "per_image": parts.model_dump(mode="json"),
    }


def in_words(cost: dict[str, Any]) -> str:
    """A bill in one or two lines."""
    if not cost:
        return "nothing was recorded yet"
    whole = sum(cost["parts"].values())
    shares = ", ".join(
        f"{name} {value / whole:.1%}"
        for name, value in cost["parts"].items()
        if value >= 0.0005 * whole
    )
    phrases = [f"{amount(whole)}FLOPs ({shares})"]
    if cost["share_of_peak"] is not None:
        phrases.append(
            f"{cost['share_of_peak']:.0%} of the {amount(cost['peak_flops'])}FLOP/s that the"
            f" machine gave, {cost['peak_memory'] / 1e6:,.0f} MB at the peak"
        )
    if cost["money"] is not None:
        phrases.append(
            f"{cost['money']:.4g} for {clock(cost['seconds'])} at {cost['price_per_hour']:g} an"
            " hour"
        )
    phrases.append(f"a picture drawn and judged {amount(cost['per_image']['evaluation'])}FLOPs")
    if cost["per_image"]["uncounted"]:
        phrases.append("not counted: " + ", ".join(cost["per_image"]["uncounted"]))
    return "; ".join(phrases)


def _peaks(folder: RunFolder) -> Peaks | None:
    """None for a run that was trained elsewhere, or whose file is damaged."""
    try:
        kept = read_json(folder.path / "cost.json", "")
        return Peaks(int(kept["peak_memory"]), float(kept["peak_flops"]))
    except (FulcrumError, KeyError, TypeError, ValueError):
        return None
