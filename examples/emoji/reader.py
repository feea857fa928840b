"""Emoji of several styles as given samples: drawn from the user's packages, captioned, held out by concept and by style.

    train        the concepts that are not held out
    validation   a tenth of the concepts, in every style
    reference    another share of the concepts, in every style
    apart        one whole style, which nothing is trained on: a store of its own, split by the same concepts

Concepts that differ in a person's sex, an hour or a direction are one family: no family stands on both sides.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from examples.emoji import words
from examples.emoji.packages import IconSet, Packages, open_packages, slug
from fulcrum.data.readers.reader import Given
from fulcrum.spec.errors import BadInput, nearest

APART = "openmoji"  # held out when no style is named: its outlines are like no other's
VALIDATION, REFERENCE = 0.10, 0.15  # shares of the families
MOST_BODY = 1 << 20  # signs of one SVG
DANGER = re.compile(
    r"<!|<\?|<\s*(image|feImage|script|foreignObject|iframe|text)\b|href\s*=\s*[\"'](?!#)"
    r"|url\(\s*[\"']?(?!#)|@import",
    re.IGNORECASE,
)
_SEX = re.compile(r"\b(man|woman|men|women|person|people|boy|girl|prince|princess|mr|mrs|merman|mermaid|merperson)\b")
_HOURS = re.compile(r"\b(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)[- ](o.?clock|thirty)\b")
_SIDES = re.compile(r"\b(left|right|up|down|upwards|downwards|leftwards|rightwards|backhand)\b")


def family(name: str) -> str:
    """Concepts with one family are never parted."""
    text = name.lower()
    text = _HOURS.sub("hour", text)
    rest = re.sub(r"[^a-z0-9]+", " ", _SIDES.sub("", _SEX.sub("", text))).strip()
    return rest or "a human being"


def split_of(name: str) -> str:
    """By the family's hash: the same for every style, set of packages and machine."""
    number = int.from_bytes(hashlib.blake2b(f"emoji {family(name)}".encode(), digest_size=8).digest(), "little") / 2**64
    return "validation" if number < VALIDATION else "reference" if number < VALIDATION + REFERENCE else "train"


class EmojiReader:
    """Every icon of every style, in an order that mixes both, so that the first few hundred stand for all.

    `apart`: only those of the style that is held out.
    """

    kind = "emoji packages"

    def __init__(self, path: str | Path, size: int, apart: bool = False, style: str = "") -> None:
        self.packages: Packages = open_packages(Path(path).expanduser())
        self.size, self.done = size, 0
        styles = list(self.packages.sets)
        if style and style not in styles:
            raise BadInput(f"no style is called '{style}'", nearest(style, styles))
        self.style = style or (APART if APART in styles else styles[-1])
        if len(styles) < 2:
            raise BadInput(f"only one style is there: {styles[0]}", "one is held out: give at least two icon sets")
        self.apart = apart
        chosen = [one for one in self.packages.sets.values() if (one.style == self.style) or not apart]
        self.icons = sorted(
            ((one, name) for one in chosen for name in one.icons if not apart or one.style == self.style),
            key=lambda pair: (_mixed(f"{pair[0].style}/{pair[1]}"), pair[1], pair[0].style),
        )
        _renderer()

    def __iter__(self) -> Iterator[Given]:
        for done, (icons, name) in enumerate(self.icons, 1):
            self.done = done
            yield self._sample(icons, name)

    def share(self) -> float:
        return self.done / max(len(self.icons), 1)

    def about(self) -> dict[str, Any]:
        """For the store's card: where its pictures come from."""
        used = {
            style: version for style, version in self.packages.versions().items() if (style == self.style) == self.apart
        }
        return {
            "packages": used,
            "held_out_style": self.style,
            "licence": "; ".join(f"{style} {version}" for style, version in used.items()),
        }

    def _sample(self, icons: IconSet, name: str) -> Given:
        place = f"{icons.style}/{name}"
        known = self.packages.names.get(name)
        if icons.style == self.style and not self.apart:
            return Given(place, b"", {}, left="of the style that is held out")
        if known is None:
            return Given(place, b"", {}, left="CLDR has no such name (skin tones, flags, sequences)")
        alias = icons.icons[name].get("alias")
        if alias in self.packages.names:
            return Given(place, b"", {}, left="another name of a picture that is there")
        try:
            rgba = draw(icons, name, self.size)
            facts = words.measure(rgba)
        except ValueError as error:
            return Given(place, b"", {}, fault=str(error))
        group = icons.groups.get(alias or name, "")
        captions = {
            "short": [words.short(known.name)],
            "medium": [words.medium(known.name, known.keywords)],
            "long": [words.long(known.name, known.keywords, icons.title, group, facts)],
        }
        return Given(place, _on_white(rgba), captions, group=family(known.name), split=split_of(known.name))


def _mixed(name: str) -> bytes:
    return hashlib.blake2b(f"order {name}".encode(), digest_size=8).digest()


def draw(icons: IconSet, name: str, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(S, S, 4) of an icon, centred in a square; what could reach outside of its own text is refused."""
    icon = icons.icons[name]
    body = icon["body"]
    if len(body) > MOST_BODY or DANGER.search(body):
        raise ValueError(
            "an SVG with text, pictures, scripts or links to elsewhere"
            if len(body) <= MOST_BODY
            else f"too long an SVG: {len(body):,} signs"
        )
    left, top, width, height = (
        float(icon.get(what, own)) for what, own in zip(("left", "top", "width", "height"), icons.box, strict=True)
    )
    side = max(width, height)
    view = f"{left - (side - width) / 2:g} {top - (side - height) / 2:g} {side:g} {side:g}"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{size}" '
        f'height="{size}" viewBox="{view}">{body}</svg>'
    )
    try:
        data = bytes(_renderer().svg_to_bytes(svg_string=svg, width=size, height=size, skip_system_fonts=True))
        pixels = np.array(Image.open(io.BytesIO(data), formats=("PNG",)).convert("RGBA"))
    except Exception as error:  # a Rust library behind it: many kinds
        raise ValueError(f"cannot be drawn ({type(error).__name__}: {str(error)[:80]})") from None
    if pixels.shape != (size, size, 4):
        raise ValueError(f"drawn with {pixels.shape[1]} x {pixels.shape[0]} pixels, asked for {size}")
    return pixels


def _renderer() -> Any:
    try:
        import resvg_py  # type: ignore[import-not-found]
    except ImportError:
        raise BadInput("to draw SVG the package resvg-py is needed", "pip install resvg-py") from None
    return resvg_py


def _on_white(rgba: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    image = Image.fromarray(rgba)
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    stream = io.BytesIO()
    Image.alpha_composite(white, image).convert("RGB").save(stream, "PNG", compress_level=6)
    return stream.getvalue()


__all__ = ["APART", "EmojiReader", "draw", "family", "slug", "split_of"]
