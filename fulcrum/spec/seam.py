"""The seams: one base record for each named place where runs may differ. Rooms derive their fillers from these."""

from typing import Any, ClassVar

from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Filler, Width


class Source(Filler):
    """data.source: where samples come from."""

    def held_out(self, split: str, count: int) -> "Source":
        """Pictures to judge by that no run trains on: truly captioned, whatever this source does to its own."""
        raise BadInput(f"{type(self).__name__} has no held-out pictures", "define held_out(split, count)")


class Caption(Filler):
    """data.caption: which text a sample gets."""


class Codec(Filler):
    """encode.codec: pixels to what the denoiser sees, and back."""

    trained: ClassVar[bool] = False  # part of the step, which then reads pixels
    stride: Width
    channels: Width


class TextEncoder(Filler):
    """encode.text: prompts to token embeddings with a mask."""

    width: Width


class Teacher(Filler):
    """encode.teachers: frozen vision features by name."""

    name: str
    patch: Width  # pixels of a token, along each side
    width: Width


class Time(Filler):
    """flow.time: a uniform number to the time of a sample."""


class Predict(Filler):
    """flow.predict: what the network's output means."""


class Weight(Filler):
    """flow.weight: how much a time counts in the loss."""


class Route(Filler):
    """model.route: which tokens a span of blocks sees. What is not overridden is a model without a span."""

    fuses: ClassVar[bool] = False  # a path leads around the span: it may be left out

    def kept(self, tokens: int) -> int:
        """How many of a sample's tokens the span sees in training."""
        return tokens

    def bounds(self, depth: int) -> tuple[int, int]:
        """First and last block of the span."""
        return (depth, depth - 1)  # no block

    def draws(self, tokens: int) -> dict[str, Any]:
        """Random numbers that it needs in training, by name: `keep`, `drop_path`."""
        return {}


class Condition(Filler):
    """model.condition: what is added to the time vector."""


class Term(Filler):
    """terms: one addend of the loss, known by its name."""

    name: str
    weight: float

    def weight_at(self, progress: float) -> float:
        """How much it counts when this share of the budget is done; at zero the term is off and costs nothing."""
        return self.weight

    def teachers(self) -> tuple[str, ...]:
        """Names of the teachers whose tokens it reads from the batch."""
        return ()


class Rule(Filler):
    """optim.rule: how gradients become updates."""


class Average(Filler):
    """average: which average of the weights is drawn and measured with."""


class Start(Filler):
    """start: the weights a run begins from."""


class Guide(Filler):
    """sample.guide: how the prompt steers sampling."""
