"""The laws that every lever of the catalogue obeys: a new lever is tested the moment it is listed.

So far: edit, commute, witness, resume, leave. Cost, world, compile, recompute and copy are held by the rooms' own tests.
"""

from itertools import combinations

import pytest

from fulcrum.levers.catalog import LEVERS
from fulcrum.spec.edit import diff, inside
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import apply
from fulcrum.spec.system import System
from fulcrum.train.build import assemble, build
from fulcrum.train.checkpoint import weights_hash
from fulcrum.train.feed import Feed
from fulcrum.train.loop import train
from fulcrum.train.state import State

NAMED = {lever.name: lever for lever in LEVERS}


def trained(run, cache):
    """A built run after its six steps."""
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    state = train(built, State(), [], lambda: False)
    assert state.images == run.budget.images
    return built


def fingerprints(built):
    """What a lever may change: trained weights and averaged weights."""
    return {"weights": weights_hash(dict(built.step.backbone.state_dict())),
            "averaged weights": weights_hash(built.average.weights(built.step.backbone))}


@pytest.fixture(scope="module")
def base(tiny, cache):
    return trained(tiny(), cache)


@pytest.mark.parametrize("name", NAMED)
def test_edit_changes_something_and_only_what_it_declares(name, tiny):
    changes = diff(tiny(), tiny(f"spark + {name}"))
    assert changes and all(inside(change.path, NAMED[name].touches) for change in changes)


@pytest.mark.parametrize("pair", list(combinations(NAMED, 2)), ids="+".join)
def test_levers_commute_or_conflict_whatever_the_order(pair, tiny):
    found = []
    for one, other in (pair, pair[::-1]):
        try:
            found.append(apply(tiny(), (NAMED[one](), NAMED[other]())))
        except BadInput:
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", NAMED)
def test_witness(name, tiny, base, cache):
    """A lever that changes nothing is a lie: the published BF16 arm was one."""
    built = trained(tiny(f"spark + {name}"), cache)
    lever, before, after = NAMED[name](), fingerprints(base), fingerprints(built)
    assert lever.witness(built) and not lever.witness(base)
    assert ("weights" in lever.affects) == (before["weights"] != after["weights"])
    assert before["averaged weights"] != after["averaged weights"]


@pytest.mark.parametrize("name", NAMED)
def test_resume_is_exact(name, tiny, cache):
    run = tiny(f"spark + {name}")
    whole = trained(run, cache)
    half = assemble(run, 0, System(), Feed(run, 0, cache))
    state = train(half, State(), [], _after(3))
    again = assemble(run, 0, System(), Feed(run, 0, cache))
    again.step.load_state_dict(half.step.state_dict())
    again.optimizer.load({name: value.clone() for name, value in half.optimizer.state().items()})
    again.average.load(half.average.state())
    train(again, state, [], lambda: False)
    assert fingerprints(again) == fingerprints(whole)


@pytest.mark.parametrize("name", [name for name in NAMED if NAMED[name].card.train_only])
def test_what_is_only_for_training_leaves_no_parameter(name, tiny):
    plain, with_lever = build(tiny()), build(tiny(f"spark + {name}"))
    assert {n: p.shape for n, p in plain.backbone.state_dict().items()} == \
        {n: p.shape for n, p in with_lever.backbone.state_dict().items()}


def _after(steps):
    left = [steps]

    def stop():
        left[0] -= 1
        return left[0] < 0
    return stop
