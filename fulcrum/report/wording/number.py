"""Numbers as people read them: as many digits as the uncertainty deserves, a true minus sign."""

import json
import math
from typing import Any

MINUS, NONE = "\u2212", "\u2013"


def decimals(scale: float) -> int:
    """Decimals that fit an uncertainty of `scale`: two digits of it if it begins with 1 or 2, else one."""
    if scale == 0 or not math.isfinite(scale):
        return 3
    power = math.floor(math.log10(abs(scale)))
    return min(8, max(0, (1 if abs(scale) < 3 * 10.0**power else 0) - power))


def plain(value: float | None, places: int | None = None) -> str:
    """With as many decimals as asked for, or else three significant digits without idle zeros."""
    if value is None:
        return NONE
    if places is None:
        text = f"{abs(value):,.{min(8, max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{abs(value):,.{places}f}"
    return (MINUS if value < 0 and float(text.replace(",", "")) else "") + text


def signed(value: float | None, places: int) -> str:
    text = plain(value, places)
    return text if value is None or value <= 0 or text.startswith(MINUS) else "+" + text


def change(mean: float | None, low: float | None, high: float | None) -> str:
    """'−0.21 [−0.25, −0.17]'; without an interval the mean alone. An end that is not zero does not read as zero where the
    interval has a sign."""
    if mean is None:
        return NONE
    if low is None or high is None:
        return ("+" if mean > 0 else "") + plain(mean)
    places = decimals((high - low) / 2)
    nearest = min(abs(low), abs(high)) if low * high > 0 else 0.0
    while nearest and places < 8 and not round(nearest, places):
        places += 1
    return f"{signed(mean, places)} [{signed(low, places)}, {signed(high, places)}]"


def spread(mean: float | None, sd: float | None) -> str:
    if mean is None:
        return NONE
    return plain(mean) if not sd else f"{plain(mean, decimals(sd))} ± {plain(sd, decimals(sd))}"


def probability(value: float | None) -> str:
    if value is None:
        return NONE
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def short(value: float) -> str:
    """An axis tick: 20k, 1.5M, 3e15."""
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}".replace("-", MINUS)
    for unit, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.6g}{mark}".replace("-", MINUS)
    return f"{value:.6g}".replace("-", MINUS)


def literal(value: Any) -> str:
    """A setting's value as it stands in the spec."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
