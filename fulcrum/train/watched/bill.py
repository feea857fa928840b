"""What one run has cost, by part and along every axis: from its description, its record, and what its session wrote down.

What depends on the machine (peak memory, what the processor can do at most) is written to cost.json when a run ends; what
does not is counted when it is asked for, and kept in the cache. A price is nobody's but the reader's: it is never stored.
"""

from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import write_json
from fulcrum.files.paths import reason
from fulcrum.files.sealed import read_json, read_tail, sha256_json
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.flops import PartFlops, amount
from fulcrum.spec.progress import clock
from fulcrum.spec.run import RunSpec
from fulcrum.train.build import Built
from fulcrum.train.feed import Feed
from fulcrum.train.loop import Look, Observer
from fulcrum.train.saved.run_folder import RunFolder
from fulcrum.train.state import State
from fulcrum.train.watched.training_cost import BATCH, count_parts, measured_peak, peak_memory

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
    """What `perform` takes as observers: writes down the machine's side of the bill with the last step.

    A resumed run tells of its last session, many processes of the first one.
    """

    def end(look: Look) -> None:
        if built.ranks.first and look.images >= built.run.budget.images:
            try:
                write_json(folder.path / "cost.json", Peaks.now()._asdict())
            except OSError as error:  # the run is trained by now, and a bill without this is still one
                built.feed.tell(
                    f"cannot write {folder.path / 'cost.json'}: {reason(error)}; the machine's cost is not kept"
                )

    return [end]


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
    """FLOPs of one cell of a study, by part; `drawn` pictures are judged along the way. Empty when it cannot be counted."""
    try:
        parts, pictures = count_costs(run, cache)
        return parts.totals(run.budget.images, pictures, drawn)
    except Exception:  # a user's part: the study has its results without this
        return {}


def bill(folder: RunFolder, run: RunSpec, cache: Path, price: float | None = None) -> dict[str, Any]:
    """The `cost` of a run, as far as it has come."""
    if price is not None and not 0 <= price < 1e9:
        raise BadInput(f"a price of {price:g} per hour", "give what an hour of the machine costs, such as 2.5")
    lines = [line for line in read_tail(folder.record, END_OF_RECORD) if {"images", "seconds"} <= set(line)]
    result = folder.result() or {}
    if not lines:
        return {}
    seen = int(lines[-1]["images"])
    (parts, pictures), peaks = count_costs(run, cache), _peaks(folder)
    seconds, images = float(result.get("seconds", lines[-1]["seconds"])), int(result.get("images", seen))
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
    shares = ", ".join(f"{name} {value / whole:.1%}" for name, value in cost["parts"].items() if value >= 0.0005 * whole)
    phrases = [f"{amount(whole)}FLOPs ({shares})"]
    if cost["share_of_peak"] is not None:
        phrases.append(
            f"{cost['share_of_peak']:.0%} of the {amount(cost['peak_flops'])}FLOP/s that the machine gave, "
            f"{cost['peak_memory'] / 1e6:,.0f} MB at the peak"
        )
    if cost["money"] is not None:
        phrases.append(f"{cost['money']:.4g} for {clock(cost['seconds'])} at {cost['price_per_hour']:g} an hour")
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
