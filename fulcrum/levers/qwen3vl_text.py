"""Qwen3-VL's language model as the text encoder, as the published 7 B pixel model has it instead of T5Gemma."""

from fulcrum.levers.base import Built, Card, Cost
from fulcrum.levers.shared import price
from fulcrum.levers.shared.folder_lever import FromFolder
from fulcrum.networks.fillers import FolderText
from fulcrum.networks.pretrained.config_facts import TEXT_PARTS, text_facts
from fulcrum.spec.edit import put
from fulcrum.spec.record import Count
from fulcrum.spec.run import RunSpec

WIDTH = 2048  # of the 2 B model, if no folder is given


class Qwen3VLText(FromFolder):
    max_tokens: Count = 256  # longer prompts are cut, and counted

    name = "qwen3vl_text"
    touches = ("encode.text",)
    network, also = "Qwen3VLTextModel", ("Qwen3VLModel",)
    card = Card(
        says="prompts are read by the language half of Qwen3-VL (part of the published 7 B pixel model, never ablated "
        "alone); takes its folder with the tokenizer, and only describes the run, as the 2 B model, without one",
        warns="its tokenizer gives the empty prompt no token at all: guidance then moves away from a model that "
        "reads nothing",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if self.path:
            self.require_class(TEXT_PARTS, text_facts)
        width = {} if self.path else {"width": WIDTH}
        given = {"name": "Qwen3-VL text model", "path": self.path, "max_tokens": self.max_tokens, **width}
        return put(run, "encode.text", FolderText.model_validate(given))

    def needs(self, run: RunSpec) -> str | None:
        text = run.encode.text
        return None if isinstance(text, FolderText) else f"something else replaced the text encoder by {text}"

    def cost(self, run: RunSpec) -> Cost:
        """Of the denoiser's wider reading; encoded texts come from the cache."""
        return price.of_denoiser(run, self.edit(run))

    def witness(self, built: Built) -> bool:
        return getattr(built.feed.text(), "name", "") in (self.network, *self.also)
