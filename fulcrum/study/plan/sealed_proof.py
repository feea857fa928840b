"""The proof of a study: what its arms read is encoded, every arm is seen to differ, and the seal of both is kept."""

from collections.abc import Callable
from pathlib import Path

from fulcrum.dist.device import at_hand
from fulcrum.spec.errors import BadInput
from fulcrum.study.plan.fingerprint import fingerprints, fitting
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.clock import Clock
from fulcrum.study.run.layout import Layout
from fulcrum.study.sealed import read_sealed, write_sealed
from fulcrum.train.feed import Feed

NAME = "proof.json"
Say = Callable[[str], None]


def proven(layout: Layout, folder: Path) -> bool:
    """Was every arm seen to differ? A proof that was edited, or is of other arms, is none."""
    path, hint = folder / NAME, "remove the file and run the study again: the proof is made anew, cells are kept"
    if not path.exists():
        return False
    told = [one["arm"] for one in read_sealed(path, hint)["fingerprints"]]
    expected = [arm.name for arm in layout.arms if not arm.is_baseline]
    if told != expected:
        raise BadInput(f"{path} proves {', '.join(told)}; the plan's arms are {', '.join(expected)}", hint)
    return True


def prove(layout: Layout, plan: Plan, folder: Path, out: Path, clock: Clock, say: Say) -> None:
    """Three real steps of every arm, once per study: an arm that is the baseline proves nothing."""
    fitting(layout.arms, layout.trunk_runs)
    tell = _once(say)
    with clock.counting("encoding"):  # of what they begin with; no cell waits for another's
        for arm in layout.arms:
            Feed(arm.run, plan.seeds[0], out / "cache", tell, at_hand(plan.device)).at(0)
    with clock.counting("proof"):
        say(f"three steps of each of {len(layout.arms)} arms, to prove that they differ")
        found = fingerprints(layout.arms, plan.seeds, out / "cache", tell)
        write_sealed(folder / NAME, {"fingerprints": [one._asdict() for one in found]})


def _once(say: Say) -> Say:
    """Every arm reads the same captions and would say the same."""
    heard = set[str]()

    def tell(text: str) -> None:
        if text not in heard:
            heard.add(text)
            say(text)

    return tell
