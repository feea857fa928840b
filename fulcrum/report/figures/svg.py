"""A small canvas for inline SVG, and the axes that figures share; colours come from the page's style sheet."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

from fulcrum.report.wording import number


def attributes(values: dict[str, object]) -> Markup:
    """`x1=3 class_="grid"` -> ` x1="3" class="grid"`, escaped; names lose a trailing _ and turn _ into -."""
    return Markup(
        "".join(
            f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
            for name, value in values.items()
            if value is not None
        )
    )


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


class Canvas:
    """Collects shapes; `finish` wraps them with the title and the description that a screen reader speaks."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height, self.parts = width, height, list[Markup]()

    def add(self, tag: str, inner: str | None = None, *, tip: str | None = None, **values: object) -> None:
        body = (f"<title>{escape(tip)}</title>" if tip else "") + (escape(inner) if inner is not None else "")
        self.parts.append(Markup(f"<{tag}{attributes(values)}>{body}</{tag}>"))

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        self.add("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)

    def text(self, x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> None:
        self.add("text", words, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)

    def dot(self, x: float, y: float, radius: float, class_: str, tip: str | None = None) -> None:
        self.add("circle", cx=float(x), cy=float(y), r=float(radius), class_=class_, tip=tip)

    def path(self, points: Iterable[tuple[float, float]], class_: str, tip: str | None = None) -> None:
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.add("path", d=d, class_=class_, tip=tip)

    def scale(self, x: "Axis", y: float, about: int) -> None:
        """A horizontal axis with its ticks and their values below."""
        self.line(x.start, y, x.end, y, "axis")
        for value in x.ticks(about) if about else []:
            self.line(x(value), y, x(value), y + 4, "axis")
            self.text(x(value), y + 17, number.short(round(value, 12)), "tick", "middle")

    def grid(self, y: "Axis", left: float, right: float, about: int = 4) -> None:
        """Horizontal lines with their values to the left."""
        for value in y.ticks(about):
            self.line(left, y(value), right, y(value), "grid")
            self.text(left - 6, y(value) + 4, number.short(round(value, 12)), "tick", "end")

    def directions(self, x: "Axis", y: float, higher: bool) -> None:
        """Which end of an axis of differences is better."""
        self.text(x.start, y, "← worse" if higher else "← better", "name")
        self.text(x.end, y, "better →" if higher else "worse →", "name", "end")

    def document(self, title: str, desc: str, style: str) -> str:
        """A file of its own, with the style sheet that a page would bring."""
        return str(
            Markup(
                '<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
                'aria-labelledby="title desc"><title id="title">{t}</title><desc id="desc">{d}</desc>'
                "<style>{s}</style>\n{body}\n</svg>\n"
            ).format(
                w=_short(self.width),
                h=_short(self.height),
                t=title,
                d=desc,
                s=Markup(style),
                body=Markup("\n").join(self.parts),
            )
        )

    def finish(self, ident: str, title: str, desc: str) -> Markup:
        return Markup(
            '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{i}-title {i}-desc">'
            '<title id="{i}-title">{t}</title><desc id="{i}-desc">{d}</desc>{body}</svg>'
        ).format(w=_short(self.width), h=_short(self.height), i=ident, t=title, d=desc, body=Markup("").join(self.parts))


@dataclass(frozen=True)
class Axis:
    """Maps a value to a place between `start` and `end`; a logarithm when the data span more than a factor of 20."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, *, pad: float = 0.06, may_log: bool = False) -> "Axis":
        known = list(values) or [0.0, 1.0]
        low, high = min(known), max(known)
        log = may_log and low > 0 and high / low > 20
        if log:
            low, high = math.log10(low), math.log10(high)
        if high == low:
            margin = abs(low) * 0.1 or 1.0
            low, high = low - margin, high + margin
        room = (high - low) * pad
        return cls(low - room, high + room, start, end, log)

    def __call__(self, value: float) -> float:
        inner = math.log10(value) if self.log else value
        return self.start + (inner - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        if self.log:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            steps = (1, 2, 5) if self.high - self.low < 3 else (1,)
            marks = [step * 10.0**decade for decade in decades for step in steps]
            return [value for value in marks if self.low <= math.log10(value) <= self.high]
        raw = (self.high - self.low) / about
        size = 10.0 ** math.floor(math.log10(raw))
        step = next((size * k for k in (1, 2, 2.5, 5) if size * k >= raw), size * 10)
        first = math.ceil(self.low / step)
        return [k * step + 0.0 for k in range(first, math.floor(self.high / step) + 1)]


def frame(canvas: Canvas, x: Axis, y: Axis, x_name: str, *, x_ticks: int = 4) -> None:
    """Horizontal grid lines with their values, a base line with ticks, the name of the x axis."""
    bottom = max(y.start, y.end)
    canvas.grid(y, x.start, x.end)
    canvas.scale(x, bottom, x_ticks)
    canvas.text(x.end, bottom + 33, x_name, "name", "end")


def clip(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
