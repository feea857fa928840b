"""Can the embedded text encoder read these captions? It knows the words of its own world and few others."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fulcrum.data.world.words import tokenize
from fulcrum.encode.networks.world_text import LONGEST, Tokenizer
from fulcrum.spec.errors import BadInput, shown

LOOKED_AT = 2000  # captions, spread over the source
LOST = 120  # letters that are told of what was cut
MOST_UNKNOWN = 0.5  # of all words: beyond, a caption says next to nothing
HINT = "use a text encoder of the ecosystem: --set \"encode.text=pretrained_text(path='FOLDER')\", see docs/pretrained.md"


def unread(source: Any, chooser: Any, text: Any) -> str | None:
    """A warning where some words are unknown, a refusal where most are or a caption cannot be read at all.

    Only a user's own captions are looked at: the embedded world is worded in what its encoder knows.
    """
    tokenizer = getattr(text, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer) or getattr(source, "has_scenes", True):
        return None
    ids = np.unique(np.linspace(0, len(source) - 1, LOOKED_AT).astype(np.int64))
    words, unknown = 0, Counter[str]()
    for number, prompt in zip(ids, source.prompts(chooser, ids), strict=True):
        tokens = tokenize(prompt)
        if not tokens or 1 + len(tokens) > LONGEST:
            what = f"has {len(tokens)} words, the most is {LONGEST - 1}" if tokens else "holds no word it can read"
            raise BadInput(
                f"the embedded text encoder cannot take the caption of sample {number}: {prompt[:60]!r} {what}", HINT
            )
        words += len(tokens)
        unknown.update(token for token in tokens if token not in tokenizer.index)
    share = unknown.total() / max(words, 1)
    common = ", ".join(word for word, _ in unknown.most_common(8))
    if share > MOST_UNKNOWN:
        raise BadInput(f"the embedded text encoder does not know {share:.0%} of these captions' words: {common}", HINT)
    return (
        f"warning: {share:.1%} of the captions' words are not known to the embedded text encoder and all read alike, "
        f"as 'unknown': {common}"
        if unknown
        else None
    )


def shortened(text: Any, prompt: str) -> tuple[str, str]:
    """As much of a prompt as the embedded encoder takes, and in words what was cut; pretrained ones cut by themselves."""
    if not isinstance(getattr(text, "tokenizer", None), Tokenizer) or len(tokenize(prompt)) < LONGEST:
        return prompt, ""
    end = bisect_left(range(len(prompt)), LONGEST, key=lambda length: len(tokenize(prompt[:length]))) - 1
    lost = shown(prompt[end:][:LOST])
    return prompt[:end].strip(), f"the text encoder takes {LONGEST - 1} words: the rest was cut, '{lost}'"


def readable(text: Any, prompts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Prompts as an encoder takes them, and in words what was cut; each prompt counts once, however often it is drawn."""
    pairs = {prompt: shortened(text, prompt) for prompt in dict.fromkeys(prompts)}
    lost = [prompt.removeprefix(kept).strip() for prompt, (kept, note) in pairs.items() if note]
    notes = [_cut(len(lost), f"{LONGEST - 1} words", lost[0])] if lost else []
    return [pairs[prompt][0] for prompt in prompts], notes


def _cut(count: int, limit: str, lost: str) -> str:
    """'1 prompt is longer than 63 words: the rest was cut, ...'."""
    which = ", of the first" if count > 1 else ","
    rest = f"{which} '{shown(lost[:LOST])}'" if lost else ""
    return f"{count:,} prompt{'s are' if count > 1 else ' is'} longer than {limit}: the rest was cut{rest}"


def forget_prompts(text: Any) -> None:
    """Count anew what cannot be read, for one who tells it prompt by prompt."""
    if isinstance(getattr(text, "tokenizer", None), Tokenizer):
        text.tokenizer.unknown.clear()
    if hasattr(text, "cut"):
        text.cut, text.lost = 0, ""
        text.over.clear()


def misread(text: Any) -> list[str]:
    """What an encoder could not read of the prompts that it was given so far, in words. It counts; others speak."""
    unknown, over = getattr(getattr(text, "tokenizer", None), "unknown", {}), getattr(text, "over", ())
    named = f"{', '.join(sorted(unknown))} (its words: docs/pictures.md)"
    words = [f"words the text encoder does not know, read as 'unknown': {named}"] if unknown else []
    return words + ([_cut(len(over), f"{text.longest} tokens", text.lost)] if over else [])
