"""Recaptioned: the shipped captioner looks at every picture and writes its captions, whatever they were before."""

from typing import Any

from fulcrum.data.fillers import Filtered, RecaptionedWorld, World
from fulcrum.levers.base import Built, Card, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec


class Recaptioned(Swap):
    name = "recaptioned"
    slot, filler = "data.source", RecaptionedWorld
    settings = ("drawn",)
    card = Card(
        says="captions by a network that sees the pixels alone: what long captions of one's own pictures come to, with a "
        "captioner's mistakes. Judged by the world's own captions; held against short_captions it tells how much of that "
        "loss comes back (examples/recaption.toml). Planted wrong captions are replaced too",
        warns="the captioner reads the embedded world only and learned from captions of the same world, as a real one did "
        "from captions of the web; own pictures are captioned with `fulcrum caption` and chosen by name",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source: Any = run.data.source
        if isinstance(source, RecaptionedWorld):
            raise BadInput("'recaptioned' would change nothing: the pictures are captioned anew already", "leave it out")
        if isinstance(source, World) and not isinstance(source, Filtered):
            return put(run, self.slot, self.made(**{name: getattr(source, name) for name in World.model_fields}))
        return run  # `needs` says what is missing

    def needs(self, run: RunSpec) -> str | None:
        if isinstance(run.data.source, RecaptionedWorld):
            return None
        return (
            f"the shipped captioner reads the embedded world only, not {run.data.source}: fulcrum caption writes a store's"
        )

    def witness(self, built: Built) -> bool:
        """The prompts that are trained on are not all those that the world has for the same pictures."""
        from fulcrum.data.mix import RecaptionedSource, one_shaped

        here = [phase for phase in built.phases if isinstance(phase.run.data.source, RecaptionedWorld)]
        parts = one_shaped(built.feed.source_at(here[0].start)) if here else []
        if not parts or not isinstance(parts[0], RecaptionedSource):
            return False
        source, chooser = parts[0], here[0].run.data.caption.build(None)
        ids = built.feed.ids_at(here[0].start, min(32, len(source)))
        return bool(source.prompts(chooser, ids) != source.inner.prompts(chooser, ids))
