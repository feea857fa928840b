"""What was measured, for scripts and for people: values with their intervals, and their cards in short."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulcrum.judge.card import Measured, MetricCard


def plain(measured: "dict[str, Measured]") -> dict[str, Any]:
    """The contract for scripts: a value, its interval and its card under each metric's name."""
    return {
        name: {
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "interval": [one.low, one.high],
            "card": one.card.model_dump(),
        }
        for name, one in measured.items()
    }


def table(measured: "dict[str, Measured]", labels: dict[str, str]) -> list[str]:
    """The values, then what their cards say in short: one line for all that were measured alike."""
    width = max([20, *map(len, measured)])
    alike: dict[str, list[str]] = {}
    for name, one in measured.items():
        alike.setdefault(_short(one.card), []).append(name)
    return [
        f"  {'metric':<{width}} {'value':>10}  [95 % interval]",
        *(
            f"  {name:<{width}} {_digits(one.value):>10}  [{_digits(one.low)}, {_digits(one.high)}]  "
            f"{one.card.better} is better" + (f"  ({labels[name]})" if name in labels else "") + _ends(one.card)
            for name, one in measured.items()
        ),
        *(f"  mind: {name}: {one.card.caution}" for name, one in measured.items() if one.card.caution),
        "cards in short, whole with --json",
        *(f"  {', '.join(names)}: {card}" for card, names in alike.items()),
    ]


def _ends(card: "MetricCard") -> str:
    """Where a scale begins and ends: the best of the pictures that show nothing of what was asked for, and real ones."""
    if not card.floors or card.ceiling is None:
        return ""
    name, floor = (max if card.better == "higher" else min)(card.floors.items(), key=lambda entry: entry[1])
    return f"  ({name} {_digits(floor)}, real pictures {_digits(card.ceiling)})"


def _short(card: "MetricCard") -> str:
    """Hashes by their beginnings."""
    parts = [f"N = {card.n:,}"]
    parts += [f"{what} {value[:12]}" for what in ("extractor", "reference", "prompts") if (value := getattr(card, what))]
    if card.sampler:
        parts.append(f"sampler {card.sampler}, {card.steps} steps, guidance {card.guidance}")
    return ", ".join(parts)


def _digits(value: float) -> str:
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def about(what: str, seen: Any) -> str:
    parts = [f"{count} {note}" for note, count in (*seen.notes.items(), *seen.ignored.items())]
    if seen.skipped:
        parts.append(f"{len(seen.skipped)} skipped, the first {seen.skipped[0][0]}: {seen.skipped[0][1]}")
    return f"{what}: {seen.name}, N = {seen.n:,}" + (f" ({'; '.join(parts)})" if parts else "")
