"""What a vision-language model is asked, style by style. A changed wording is another version, never an edit of an old one:
captions that are kept say which prompt they answer."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.paths import read_regular, refusal
from fulcrum.files.sealed import sha256_text
from fulcrum.spec.errors import BadInput, nearest

STYLES = ("long", "medium", "short", "tags")
TOKENS = {"long": 256, "medium": 96, "short": 32, "tags": 96}  # most of an answer


class CaptionPrompt(NamedTuple):
    style: str
    version: str
    text: str


SHIPPED = {
    "long": CaptionPrompt(
        "long",
        "long-1",
        "Describe this picture completely for someone who cannot see it: every object with its colour, material, size and "
        "place, how they relate, the background, the light and the style. State only what can be seen. Write plain "
        "sentences and no introduction.",
    ),
    "medium": CaptionPrompt(
        "medium",
        "medium-1",
        "Describe this picture in one or two plain sentences: the main objects, what they look like and where they are. "
        "State only what can be seen, without an introduction.",
    ),
    "short": CaptionPrompt(
        "short",
        "short-1",
        "Name what this picture shows in one short phrase of at most twelve words, without an introduction.",
    ),
    "tags": CaptionPrompt(
        "tags",
        "tags-1",
        "List what this picture shows as tags, separated by commas: objects, colours, style. Only the tags.",
    ),
}


def chosen_prompts(styles: str, own: Iterable[str] = ()) -> dict[str, CaptionPrompt]:
    """Style -> prompt, of styles written `long,short`; `own` replaces texts: `long=FILE`, versioned by the file's hash."""
    names = [name.strip() for name in styles.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise BadInput(f"--styles is a list of different styles, found '{styles}'", f"such as --styles {','.join(STYLES)}")
    for name in names:
        if name not in STYLES:
            raise BadInput(f"no style is called '{name}'", nearest(name, STYLES))
    prompts = {name: SHIPPED[name] for name in names}
    for pair in own:
        style, equals, file = pair.partition("=")
        if not equals or style not in prompts:
            raise BadInput(
                f"a prompt is written STYLE=FILE with a style that is asked for, found '{pair}'",
                f"styles: {', '.join(names)}",
            )
        prompts[style] = _own(style, Path(file))
    return prompts


def _own(style: str, file: Path) -> CaptionPrompt:
    try:
        text = read_regular(file).decode("utf-8-sig").strip()
    except OSError as error:
        raise refusal(error, f"the prompt {file} cannot be read", hint="a file of plain text", kind=BadInput) from None
    except UnicodeDecodeError:
        raise BadInput(f"the prompt {file} is not UTF-8", "save it as plain text") from None
    if not text:
        raise BadInput(f"the prompt {file} is empty", "write what the model is to be asked")
    return CaptionPrompt(style, f"own-{sha256_text(text, 12)}", text)
