"""The feed: batch and draw of any stretch of a run, as a pure function of the position."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.encode.cache import Cache
from fulcrum.encode.encode import Batch, Encoder
from fulcrum.flow.draw import Draw, Draws, Subset
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import Phase, phases


class Ready(NamedTuple):
    """What one phase reads and draws."""

    encoder: Encoder
    draws: Draws


class Feed:
    def __init__(self, run: RunSpec, seed: int, cache: Path, say: Callable[[str], None] | None = None) -> None:
        self.run, self.seed, self.root, self.cache, self.say = run, seed, cache, Cache(cache), say
        self.phases = phases(run)
        self.ready: dict[int, Ready] = {}                    # made when a phase begins; staged data costs nothing before
        self.networks: dict[str, Any] = {}

    def at(self, position: int, rows: int | None = None) -> tuple[Batch, Draw]:
        """Batch and draw of the images position … position + rows - 1."""
        ready = self._phase(position)
        rows = rows or self.run.budget.batch
        return ready.encoder.at(position, rows), ready.draws.at(position, rows)

    def prompts_at(self, position: int, rows: int) -> list[str]:
        """The captions that these images are trained with."""
        return self._phase(position).encoder.prompts_at(position, rows)

    def codec(self) -> Any:
        return self._network("codec", self.run.encode.codec)

    def text(self) -> Any:
        return self._network("text", self.run.encode.text)

    def _network(self, name: str, filler: Any) -> Any:
        if name not in self.networks:
            self.networks[name] = filler.build(None)
        return self.networks[name]

    def _phase(self, position: int) -> Ready:
        number = next((i for i, phase in enumerate(self.phases) if position < phase.end), len(self.phases) - 1)
        if number not in self.ready:
            self.ready = {number: self._prepare(self.phases[number])}
        return self.ready[number]

    def _prepare(self, phase: Phase) -> Ready:
        run = phase.run
        ctx = _Sized(run)
        source, chooser = run.data.source.build(ctx), run.data.caption.build(ctx)
        encoder = Encoder(source, chooser, self.seed, self.codec(), self.text(), self.cache, self.say)
        side = run.data.size // run.encode.codec.stride
        return Ready(encoder, Draws(seed=self.seed, time=run.flow.time.build(ctx),
                                    shape=(run.encode.codec.channels, side, side), drop_text=run.flow.drop_text,
                                    noise_scale=run.flow.noise_scale, needs=needs(run)))


class _Sized(NamedTuple):
    run: RunSpec


def needs(run: RunSpec) -> dict[str, Any]:
    """Random numbers that the run's fillers declare beyond time, noise and dropped captions."""
    found: dict[str, Any] = {}
    kept = run.model.route.kept(run.tokens)
    if kept < run.tokens:
        found["keep"] = Subset(run.tokens, kept)
    for term in run.terms:
        found |= {f"{term.name}/{name}": need for name, need in getattr(term, "draws", dict)().items()}
    return found
