"""Mixed captions: a picture is told at one length whenever it is read, chosen by weight; no prompt's length is then new."""

from pydantic import model_validator

from fulcrum.data.fillers import MixedStyles
from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec


class MixedCaptions(Swap):
    name = "mixed_captions"
    slot, filler = "data.caption", MixedStyles
    card = Card(
        says="captions of several lengths in one run, drawn anew at each reading: a picture that comes again may be told "
        "in another way; published only in words: long captions first, then mixed lengths, which is written "
        "mixed_captions @ (0.5, 1)",
        warns="the prompts that pictures are judged by stay the run's own. The wording of a length stays the same: only "
        "which length a reading gets is drawn",
    )

    @model_validator(mode="after")
    def _mixes(self) -> "MixedCaptions":
        if sum(weight > 0 for weight in (self.long, self.medium, self.short)) < 2:
            raise ValueError("a mix has at least two lengths with a weight above zero")
        return self

    def edit(self, run: RunSpec) -> RunSpec:
        if run.data.caption == self.made():
            raise BadInput(
                "'mixed_captions' would change nothing: the captions are mixed in this way already",
                "choose other weights, or leave it out",
            )
        return super().edit(run)

    def needs(self, run: RunSpec) -> str | None:
        return None if run.data.caption == self.made() else f"the run is captioned in another way: {run.data.caption}"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_captions(run, self.made())

    def witness(self, built: Built) -> bool:
        from fulcrum.data.captions import worded_shares

        source = built.feed.source_at(0)
        rows = min(256, len(source))
        ids = built.feed.ids_at(0, rows)
        shares, whole = worded_shares(source, ids, built.feed.prompts_at(0, rows)), self.long + self.medium + self.short
        return all(abs(shares[style] - getattr(self, style) / whole) < 3 / rows**0.5 for style in shares)  # six deviations
