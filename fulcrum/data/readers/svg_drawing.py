"""SVG drawings, drawn by the package resvg_py where it is installed; else named, so that nobody wonders where they went.

A drawing that nobody vouches for may point at files and addresses: one that holds anything but itself is refused.
"""

import re
from collections.abc import Callable
from typing import Any

from fulcrum.data.readers.untrusted_file import too_large
from fulcrum.spec.errors import install_extra

SVG = ".svg"
MOST = 4 << 20  # bytes of a drawing
SIDE = 1024  # pixels of the longer side: an import makes it smaller
MOST_ASPECT = 16  # longer to shorter side
MOST_USES = 24  # parts that are drawn again: nested, they multiply
_USE = re.compile(r"<\s*use\b", re.I)
_OUTSIDE = re.compile(
    r"""<\s*(image|foreignObject|script)\b|<!ENTITY|@import|url\(\s*['"]?(?!\s*['"]?#)|href\s*=\s*['"](?!#)""", re.I
)


def drawn(data: bytes) -> bytes:
    """A PNG of a drawing; a ValueError says why there is none."""
    renderer = _renderer()
    if renderer is None:
        raise ValueError(f"an SVG drawing, which needs a renderer: {install_extra('svg')}; or save it as a PNG")
    if len(data) > MOST:
        raise ValueError(too_large(len(data)))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("its SVG is not UTF-8") from None
    if outside := _OUTSIDE.search(text):
        raise ValueError(f"its SVG points outside itself ({outside.group(0)[:40]!r}); save it as a PNG")
    if len(_USE.findall(text)) > MOST_USES:
        raise ValueError(f"its SVG repeats parts more than {MOST_USES} times: parts of parts could grow without end")
    width, height = _size(text)
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise ValueError(f"its SVG is {width:g} by {height:g}: too long and thin to draw")
    try:
        return bytes(renderer(svg_string=text, **({"width": SIDE} if width >= height else {"height": SIDE})))
    except Exception as error:  # the renderer raises what it likes
        raise ValueError(f"its SVG cannot be drawn ({str(error)[:100]})") from None


def _size(text: str) -> tuple[float, float]:
    """Width and height of a drawing, in units of its own; a ValueError where it does not say."""
    root = re.search(r"<\s*svg\b[^>]*>", text)
    if box := re.search(r"""viewBox\s*=\s*['"]([^'"]*)['"]""", root.group(0) if root else ""):
        sides = re.split(r"[\s,]+", box.group(1).strip())[2:]
    else:
        sides = [side.group(1) for side in map(_side(root), ("width", "height")) if side]
    try:
        width, height = map(float, sides)
    except ValueError:
        width = height = 0.0
    if not (0 < width < 1e6 and 0 < height < 1e6):
        raise ValueError("its SVG does not state its size: a viewBox, or width and height")
    return width, height


def _side(root: "re.Match[str] | None") -> "Callable[[str], re.Match[str] | None]":
    text = root.group(0) if root else ""
    return lambda name: re.search(rf"""\b{name}\s*=\s*['"]([\d.]+)(?:px)?['"]""", text)


def _renderer() -> Any:
    try:
        import resvg_py
    except ImportError:
        return None
    return resvg_py.svg_to_bytes
