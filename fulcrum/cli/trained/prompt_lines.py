"""Prompts from a file or from standard input, one on a line."""

import sys
from pathlib import Path

from fulcrum.spec.errors import BadInput

MOST_BYTES, MOST_PROMPTS = 8 << 20, 10_000


def prompt_lines(source: str) -> list[str]:
    """The lines of a text file, or of standard input for "-"; empty ones are passed over."""
    from fulcrum.files.paths import read_regular

    name = "standard input" if source == "-" else source
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if source == "-" else read_regular(Path(source), limit=MOST_BYTES)
        lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
    except OSError as error:
        raise BadInput(f"the prompts cannot be read: {error}", "expected a text file with one prompt on a line") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is no UTF-8 text: {error.reason} at byte {error.start}", "save it as UTF-8") from None
    prompts = [line for line in lines if line]
    if not prompts:
        raise BadInput(f"{name} holds no prompt", "write one on a line")
    if len(prompts) > MOST_PROMPTS or len(data) > MOST_BYTES:
        raise BadInput(f"{name} holds more than {MOST_PROMPTS:,} prompts or 8 MB", "draw them in several goes")
    return prompts
