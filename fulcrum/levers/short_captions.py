"""Short captions: one clause instead of everything that can be seen."""

from typing import Literal

from fulcrum.data.fillers import OneStyle
from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.shared import price
from fulcrum.levers.shared.published import claim
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

SHORT = OneStyle(style="short")


class ShortCaptions(Lever):
    prompts: Literal["kept", "matched"] = "kept"  # judged by the run's own prompts, or by short ones too

    name = "short_captions"
    touches = ("data.caption", "sample.prompts")
    card = Card(
        says="training captions of one clause; most of a picture is left unsaid",
        claims=(
            claim("fid", +18.64, note="the published arm also changed the captioner and was judged on long prompts"),
            claim("cmmd", +0.57),
            claim("dino_mmd", +0.75),
        ),
        warns="prompts=kept (the published form) also asks for what was never said in training; prompts=matched judges by "
        "short prompts, which ask for less, and is not comparable with the baseline on attributes",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        edited = put(run, "data.caption", SHORT)
        edited = put(edited, "sample.prompts", SHORT) if self.prompts == "matched" else edited
        if edited == run:
            raise BadInput("'short_captions' would change nothing: the captions are short already", "leave it out")
        return edited

    def needs(self, run: RunSpec) -> str | None:
        if run.data.caption != SHORT:
            return f"the run is captioned in another way: {run.data.caption}"
        return (
            None
            if self.prompts == "kept" or run.sample.prompts == SHORT
            else f"pictures are judged by other prompts: {run.sample.prompts}"
        )

    def cost(self, run: RunSpec) -> Cost:
        return price.of_captions(run, SHORT)

    def witness(self, built: Built) -> bool:
        from fulcrum.data.captions import worded_shares

        source = built.feed.source_at(0)
        rows = min(32, len(source))
        ids = built.feed.ids_at(0, rows)
        short = worded_shares(source, ids, built.feed.prompts_at(0, rows))["short"] == 1.0
        return short and (self.prompts == "kept" or built.run.sample.prompts == SHORT)
