"""SVG drawings, drawn by the package resvg_py where it is installed; else named, so that nobody wonders where they went.

A drawing that nobody vouches for may point at files and addresses: one that holds anything but itself is refused.
"""

import re
from typing import Any

from fulcrum.data.readers.untrusted_file import too_large
from fulcrum.spec.install import install_extra

SVG = ".svg"
MOST = 4 << 20  # bytes of a drawing
SIDE = 1024  # pixels of the longer side: an import makes it smaller
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
    try:
        return bytes(renderer(svg_string=text, width=SIDE))
    except Exception as error:  # the renderer raises what it likes
        raise ValueError(f"its SVG cannot be drawn ({str(error)[:100]})") from None


def _renderer() -> Any:
    try:
        import resvg_py
    except ImportError:
        return None
    return resvg_py.svg_to_bytes
