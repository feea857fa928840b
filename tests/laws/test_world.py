"""The law of the world over the whole catalogue: two gloo processes, one group for all levers."""

import pytest

from fulcrum.levers.catalog import CATALOG, with_files
from fulcrum.levers.laws import missing
from fulcrum.levers.two_processes import verdicts

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    names = [name for name in CATALOG.levers if reason(name) is None]
    return verdicts(names, CATALOG, tmp_path_factory.mktemp("world"))


def reason(name):
    """Why a lever cannot be tried here."""
    network = getattr(CATALOG.levers[name], "network", None)
    return network and missing(network)


@pytest.mark.parametrize("name", CATALOG.levers)
def test_one_process_equals_two(name, found):
    if reason(name):
        pytest.skip(f"{name}: {reason(name)}")
    assert found[name] == ""


BATCH_DEPENDENT = '''
"""A term that compares a sample with the mean of its batch: with two processes the batch is
another."""
from typing import Any, ClassVar

from fulcrum.levers.base import Card, Lever
from fulcrum.spec import slots
from fulcrum.spec.edit import put


class Centred(slots.TermFiller):
    kind: ClassVar[str] = "centred"
    name: str = "centred"
    weight: float = 0.5

    def build(self, ctx: Any) -> Any:
        from torch import nn

        class Term(nn.Module):
            taps = ()

            def forward(self, view):
                return (view.x - view.x.mean(0)).square().flatten(1).mean(1)
        return Term()


class UseCentred(Lever):
    name: ClassVar[str] = "centred"
    touches: ClassVar[tuple[str, ...]] = ("terms.centred",)
    card: ClassVar[Card] = Card(says="a mutant")

    def edit(self, run):
        return put(run, "terms.centred", Centred())

    def witness(self, built):
        return "centred" in built.step.terms
'''


def test_a_lever_that_looks_at_its_batch_mates_is_caught(tmp_path):
    path = tmp_path / "centred.py"
    path.write_text(BATCH_DEPENDENT)
    catalogue, _ = with_files([path])
    folder = tmp_path / "world"
    folder.mkdir()
    assert "gradients" in verdicts(["centred"], catalogue, folder, (path,))["centred"]
