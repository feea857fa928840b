"""Mixed captions: each picture is told at one length, chosen by weight; prompts of any length are then no surprise."""

from typing import Annotated

from pydantic import model_validator

from fulcrum.data.fillers import MixedStyles
from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.shared import price
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Within
from fulcrum.spec.run import RunSpec

Weight = Annotated[float, Within("[0, 1000]")]


class MixedCaptions(Lever):
    long: Weight = 0.5
    medium: Weight = 0.25
    short: Weight = 0.25

    name = "mixed_captions"
    touches = ("data.caption",)
    card = Card(
        says="captions of several lengths in one run; published only in words: long captions first, then mixed lengths, "
        "which is written mixed_captions @ (0.5, 1)",
        warns="the prompts that pictures are judged by stay the run's own",
    )

    @model_validator(mode="after")
    def _mixes(self) -> "MixedCaptions":
        if sum(weight > 0 for weight in (self.long, self.medium, self.short)) < 2:
            raise ValueError("a mix has at least two lengths with a weight above zero")
        return self

    def _mix(self) -> MixedStyles:
        return MixedStyles(long=self.long, medium=self.medium, short=self.short)

    def edit(self, run: RunSpec) -> RunSpec:
        if run.data.caption == self._mix():
            raise BadInput(
                "'mixed_captions' would change nothing: the captions are mixed in this way already",
                "choose other weights, or leave it out",
            )
        return put(run, "data.caption", self._mix())

    def needs(self, run: RunSpec) -> str | None:
        return None if run.data.caption == self._mix() else f"the run is captioned in another way: {run.data.caption}"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_captions(run, self._mix())

    def witness(self, built: Built) -> bool:
        from fulcrum.data.caption import worded_shares

        source = built.feed.source_at(0)
        rows = min(256, len(source))
        ids = built.feed.ids_at(0, rows)
        shares, whole = worded_shares(source, ids, built.feed.prompts_at(0, rows)), self.long + self.medium + self.short
        return all(abs(shares[style] - getattr(self, style) / whole) < 3 / rows**0.5 for style in shares)  # six deviations
