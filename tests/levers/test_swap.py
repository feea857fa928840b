"""A lever that swaps a filler takes its settings from it: they are declared once."""

import ast
import inspect
from typing import Annotated

import pytest
from pydantic import ValidationError

from fulcrum.levers.base import Card, Swap
from fulcrum.levers.catalog import CATALOG, LEVERS
from fulcrum.spec.edit import get
from fulcrum.spec.record import Within
from fulcrum.spec.slots import WeightFiller

SWAPS = [lever for lever in LEVERS if issubclass(lever, Swap)]


class Bump(WeightFiller):
    kind = "bump"
    height: Annotated[float, Within("(0, 3]")] = 2.0
    width: float = 0.25


class UseBump(Swap):
    name = "use_bump"
    slot, filler = "flow.weight", Bump
    card = Card(says="a bump")


class NarrowBump(UseBump):
    name = "narrow_bump"
    filler, settings = Bump, ("height", "width")
    width: float = 0.1
    twice: bool = False


def test_settings_are_the_fillers():
    assert [(name, field.default) for name, field in UseBump.model_fields.items()] == [
        ("height", 2.0),
        ("width", 0.25),
    ]
    assert UseBump.touches == ("flow.weight",)
    run = UseBump(height=1.5).edit(CATALOG.recipes["spark"]())
    assert (
        run.flow.weight == Bump(height=1.5) and str(UseBump(height=1.5)) == "use_bump(height=1.5)"
    )
    with pytest.raises(ValidationError, match="greater than 0 and at most 3"):
        UseBump(height=4.0)
    with pytest.raises(ValidationError, match="hieght"):
        UseBump(hieght=1.0)


def test_a_subclass_may_change_a_default_and_add_a_setting():
    assert NarrowBump().made() == Bump(width=0.1)
    assert str(NarrowBump(twice=True)) == "narrow_bump(twice=True)"
    assert UseBump().made() == Bump(width=0.25)  # its base is as it was


@pytest.mark.parametrize("lever", SWAPS, ids=lambda lever: lever.name)
def test_catalogue(lever):
    """What a lever offers exists in its filler, and nothing that it takes over as it is was written
    again."""
    filler = lever.filler.model_fields
    assert set(lever.settings) <= set(filler)
    written = {
        name
        for cls in lever.__mro__
        if issubclass(cls, Swap) and cls is not Swap
        for name in _written(cls)
    }
    for name in written & set(lever.settings):
        own, taken = lever.model_fields[name], filler[name]
        assert (own.annotation, own.metadata, own.default) != (
            taken.annotation,
            taken.metadata,
            taken.default,
        )
    assert lever.slot in lever.touches


def _written(cls: type) -> set[str]:
    """Names that the class's own source annotates."""
    body = ast.parse(inspect.getsource(cls)).body[0].body
    return {line.target.id for line in body if isinstance(line, ast.AnnAssign)}


def test_slots_hold_the_filler():
    """The edit of a lever that needs nothing else puts its filler where it says."""
    run = CATALOG.recipes["spark"]()
    for name in ("min_snr", "uniform_time", "x_prediction", "ema", "muon", "tread"):
        lever = CATALOG.levers[name]()
        assert isinstance(get(lever.edit(run), lever.slot), lever.filler)
