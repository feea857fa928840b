"""A session asks for the numbers of a step when the next one is under way, as docs/on-a-gpu.md
promises to a device."""

from types import SimpleNamespace

import pytest

from fulcrum.spec.run import System
from fulcrum.training import loop
from fulcrum.training.loop import StepCheck
from fulcrum.training.observers import Standpoint
from fulcrum.training.session import Order, perform


@pytest.fixture
def asked(monkeypatch):
    """Images before a step -> steps that had been begun when somebody first asked whether it
    counts."""
    begun, first = [], {}

    class Late(StepCheck):
        """As on a device: nobody knows before asking, and asking waits."""

        def __init__(self, *args):
            super().__init__(*args)
            self.late, self.settled = True, False

        def state(self):
            first.setdefault(self.before.images, len(begun))
            return super().state()

    def gradients(built, state, feed=None, real=loop.gradients):
        begun.append(state.images)
        return real(built, state, feed)

    monkeypatch.setattr(loop, "StepCheck", Late)
    monkeypatch.setattr(loop, "gradients", gradients)
    return first


def test_nobody_in_a_session_waits_for_the_step_that_is_just_taken(asked, tiny, tmp_path):
    run = tiny()
    steps = run.budget.images // run.budget.batch
    perform(
        Order(run, 0, "spark", tmp_path, System(save_every=10**9), quiet=True), lambda text: None
    )
    assert steps > 2 and [asked[step * run.budget.batch] for step in range(steps)] == [
        *range(2, steps + 1),
        steps,
    ]


def test_where_a_process_stands_is_known_without_its_numbers():
    class Look:
        images, built = 96, SimpleNamespace()

        @property
        def state(self):
            raise AssertionError("it waited for the step")

    noted = []
    Look.built.run = SimpleNamespace(budget=SimpleNamespace(batch=32))
    Look.built.ranks = SimpleNamespace(
        standing=SimpleNamespace(at=lambda *where: noted.append(where))
    )
    Standpoint("training")(Look())
    assert noted == [("training", 3)]
