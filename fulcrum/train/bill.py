"""What one run has cost, by part and along every axis: from its description, its record, and what its session wrote down.

What depends on the machine (peak memory, what the processor can do at most) is written to cost.json when a run ends; what
does not is counted when it is asked for, and kept in the cache. A price is nobody's but the reader's: it is never stored.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.run import RunSpec
from fulcrum.train.build import Built
from fulcrum.train.feed import Feed
from fulcrum.train.loop import Look, Observer
from fulcrum.train.observers import clock
from fulcrum.train.run_folder import RunFolder, read_json, write_json
from fulcrum.train.state import State
from fulcrum.train.training_cost import BATCH, Parts, axes, count_parts, measured_peak, peak_memory

VERSION = 2  # of what is counted: older entries of the cache are not read


class Session(NamedTuple):
    """What only the process that trained knows."""

    peak_memory: int  # bytes
    peak_flops: float  # FLOP/s of its best fp32 product

    @classmethod
    def now(cls) -> "Session":
        return cls(peak_memory(), measured_peak())


class Counted(NamedTuple):
    parts: Parts
    pictures: int  # that frozen networks look at once


def sessions(built: Built, folder: RunFolder, state: State) -> list[Observer]:
    """What `perform` takes as observers: writes down the machine's side of the bill with the last step.

    A resumed run tells of its last session, many processes of the first one.
    """

    def end(look: Look) -> None:
        if built.ranks.first and look.state.images >= built.run.budget.images:
            write_json(folder.path / "cost.json", Session.now()._asdict())

    return [end]


def counted(run: RunSpec, cache: Path) -> Counted:
    """FLOPs of every part of a run, for one image. The same run is counted once."""
    told = json.dumps([VERSION, run.plain()], sort_keys=True)
    path = cache / "flops" / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.json"
    if path.is_file():
        try:
            kept = json.loads(path.read_text())
            return Counted(Parts.model_validate(kept["parts"]), int(kept["pictures"]))
        except (ValueError, KeyError, TypeError):
            pass  # damaged: counted again
    feed = Feed(run, 0, cache)
    pictures, captions = feed.sight(BATCH)
    parts = count_parts(run, [captions[k % len(captions)] for k in range(BATCH)], feed.teachers())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"parts": parts.model_dump(mode="json"), "pictures": pictures})
    return Counted(parts, pictures)


def by_part(found: Counted, images: int, drawn: int = 0) -> dict[str, float]:
    """FLOPs in all: training looks at `images`, frozen networks once at every picture, evaluation draws `drawn`."""
    parts, once = found.parts, found.pictures
    named = {
        "denoiser": parts.denoiser * images,
        **{f"term {name}": each * images for name, each in parts.terms.items()},
        "optimizer": parts.optimizer * images,
        "tuned codec": parts.tuned_codec * images,
        "codec": parts.codec * once,
        "text": parts.text * once,
        **{f"teacher {name}": each * once for name, each in parts.teachers.items()},
        "evaluation": parts.evaluation * drawn,
    }
    return {name: value for name, value in named.items() if value}


def of_arm(run: RunSpec, cache: Path, drawn: int) -> dict[str, float]:
    """FLOPs of one cell of a study, by part; `drawn` pictures are judged along the way. Empty when it cannot be counted."""
    try:
        return by_part(counted(run, cache), run.budget.images, drawn)
    except Exception:  # a user's part: the study has its results without this
        return {}


def bill(folder: RunFolder, run: RunSpec, cache: Path, price: float | None = None) -> dict[str, Any]:
    """The `cost` of a run, as far as it has come."""
    if price is not None and not 0 <= price < 1e9:
        raise BadInput(f"a price of {price:g} per hour", "give what an hour of the machine costs, such as 2.5")
    last, result = _last(folder.record), folder.result() or {}
    if last is None:
        return {}
    found, session = counted(run, cache), _session(folder)
    spent = axes([last], run.budget.batch, found.parts.training())[0]
    seconds, images = float(result.get("seconds", spent.seconds)), int(result.get("images", spent.images))
    speed = images / max(seconds, 1e-9)
    return {
        "steps": spent.steps,
        "images": images,
        "seconds": seconds,
        "flops": spent.flops,
        "money": None if price is None else price * seconds / 3600,
        "price_per_hour": price,
        "images_per_second": round(speed, 2),
        "share_of_peak": round(speed * found.parts.training() / session.peak_flops, 4) if session else None,
        "peak_flops": session.peak_flops if session else None,
        "peak_memory": session.peak_memory if session else None,
        "parts": by_part(found, images),
        "per_image": found.parts.model_dump(mode="json"),
    }


def said(cost: dict[str, Any]) -> str:
    """A bill in one or two lines."""
    if not cost:
        return "nothing was recorded yet"
    whole = sum(cost["parts"].values())
    shares = ", ".join(f"{name} {value / whole:.1%}" for name, value in cost["parts"].items() if value >= 0.0005 * whole)
    told = [f"{amount(whole)}FLOPs ({shares})"]
    if cost["share_of_peak"] is not None:
        told.append(
            f"{cost['share_of_peak']:.0%} of the {amount(cost['peak_flops'])}FLOP/s that the machine gave, "
            f"{cost['peak_memory'] / 1e6:,.0f} MB at the peak"
        )
    if cost["money"] is not None:
        told.append(f"{cost['money']:.4g} for {clock(cost['seconds'])} at {cost['price_per_hour']:g} an hour")
    told.append(f"a picture drawn and judged {amount(cost['per_image']['evaluation'])}FLOPs")
    if cost["per_image"]["uncounted"]:
        told.append("not counted: " + ", ".join(cost["per_image"]["uncounted"]))
    return "; ".join(told)


def amount(value: float) -> str:
    """12.3 G"""
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g} "


def _session(folder: RunFolder) -> Session | None:
    """None for a run that was trained elsewhere, or whose file is damaged."""
    try:
        kept = read_json(folder.path / "cost.json", "")
        return Session(int(kept["peak_memory"]), float(kept["peak_flops"]))
    except (FulcrumError, KeyError, TypeError, ValueError):
        return None


def _last(path: Path) -> dict[str, Any] | None:
    """The last line of a record: enough for totals. One that a kill cut off does not count."""
    for line in reversed(path.read_text().splitlines() if path.is_file() else []):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and {"images", "seconds"} <= set(found):
            return found
    return None
