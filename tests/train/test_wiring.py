"""Risk (b): unlike levers, a user's own term and two stages go through phrase, diff, key, build and
resume together."""

import pytest

from fulcrum.levers.catalog import with_files
from fulcrum.spec.edit import diff, key, read
from fulcrum.spec.run import System
from fulcrum.training.session import Order, perform

OWN = '''
"""Total variation of the predicted picture, with a random number of its own."""
from typing import Any, ClassVar
from fulcrum.levers.base import Card, Lever
from fulcrum.spec import slots
from fulcrum.spec.edit import put

class Smooth(slots.TermFiller):
    kind: ClassVar[str] = "smooth"
    name: str = "smooth"
    weight: float = 0.1

    def draws(self):
        from fulcrum.spec.slots import Uniform
        return {"u": Uniform(1)}

    def build(self, ctx: Any) -> Any:
        from torch import nn

        class Term(nn.Module):
            taps = (1,)
            def forward(self, view):
                rough = (view.x[..., 1:] - view.x[..., :-1]).abs().flatten(1).mean(1)
                nothing = 0 * view.taps[1].h.flatten(1).mean(1)
                return rough * view.draw.extra["smooth/u"][:, 0] + nothing
        return Term()

class UseSmooth(Lever):
    strength: float = 0.1
    name: ClassVar[str] = "smooth"
    touches: ClassVar[tuple[str, ...]] = ("terms.smooth",)
    card: ClassVar[Card] = Card(says="smoother pictures")

    def edit(self, run):
        return put(run, "terms.smooth", Smooth(weight=self.strength))

    def witness(self, built):
        return "smooth" in built.step.terms
'''
PHRASE = (
    "spark + muon + tread + smooth(strength=0.2) + synthetic_then_real(until=0.5) +"
    " sft_stage(start=0.8, count=16)"
)


@pytest.fixture
def known(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return with_files([tmp_path / "own.py"])


def test_everything_together(known, tiny, tmp_path, cache, lose):
    catalogue, hashes = known
    run = tiny(PHRASE, catalogue=catalogue)
    changed = {change.path.split("·")[0].split(".0")[0] for change in diff(tiny(), run)}
    assert {"optim.rule", "model.route", "terms.smooth"} <= changed
    assert key(run, 0, hashes) != key(run, 0, {"own.py": "another text"})
    assert read(run.plain(), catalogue.fillers) == run
    order = Order(run, 0, PHRASE, tmp_path / "a", System(), hashes, quiet=True)
    whole = perform(order, print)
    order = order._replace(out=tmp_path / "b")
    lose(order, 24)
    assert perform(order, print)["weights_sha256"] == whole["weights_sha256"]


def test_every_lever_of_the_phrase_is_really_on(known, tiny, cache):
    from fulcrum.spec.phrase import parse
    from fulcrum.training.build import assemble
    from fulcrum.training.feed import Feed

    catalogue, _ = known
    run = tiny(PHRASE, catalogue=catalogue)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    assert all(lever.witness(built) for lever in parse(PHRASE, catalogue).levers)
    plain = assemble(tiny(), 0, System(), Feed(tiny(), 0, cache))
    assert not any(lever.witness(plain) for lever in parse(PHRASE, catalogue).levers)
