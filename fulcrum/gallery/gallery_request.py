"""What the page may ask for: a prompt, a noise, settings and columns, each within a limit; nothing of it is a path."""

from typing import Annotated

from pydantic import Field, field_validator

from fulcrum.spec.record import Frozen

MOST_LETTERS, MOST_PICTURES, MOST_STEPS, MOST_COLUMNS, MOST_GUIDANCE = 2000, 8, 200, 12, 100.0
MOST_SEED = 2**53 - 1  # a browser counts no further


class WantedColumn(Frozen):
    key: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]  # of a run of the gallery
    at: Annotated[int | None, Field(ge=1)] = None  # images seen; none: its newest weights


class GalleryRequest(Frozen):
    page: Annotated[str, Field(pattern="^[0-9a-z]{1,32}$")]  # who asks: a newer request of the same page ends this one
    prompt: Annotated[str, Field(max_length=MOST_LETTERS)]
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    count: Annotated[int, Field(ge=1, le=MOST_PICTURES)] = 1  # pictures of each run
    guidance: Annotated[float | None, Field(gt=0, le=MOST_GUIDANCE)] = None  # none: each run's own
    steps: Annotated[int | None, Field(ge=1, le=MOST_STEPS)] = None
    columns: Annotated[tuple[WantedColumn, ...], Field(min_length=1, max_length=MOST_COLUMNS)]

    @field_validator("prompt")
    @classmethod
    def _one_line(cls, prompt: str) -> str:
        """Letters that cannot be seen become spaces: the prompt is pasted into terminals."""
        return "".join(letter if letter.isprintable() else " " for letter in prompt).strip()
