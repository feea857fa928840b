"""Training outside of a study: a run with its previews, its bill and the trackers that were asked for."""

from collections.abc import Callable, Sequence
from typing import Any

from fulcrum.spec.edit import require_seed
from fulcrum.study.run.measuring.preview import USUAL, PreviewPlan, previewing
from fulcrum.training.cost_record import sessions
from fulcrum.training.dist.collectives import require_agreement
from fulcrum.training.dist.ranks import TIMEOUT, start
from fulcrum.training.kept_weights import keeping
from fulcrum.training.session import Order, perform
from fulcrum.training.trackers import RunLabels, together, tracking


def train_run(
    order: Order,
    say: Callable[[str], None],
    track: Sequence[str] = (),
    plan: PreviewPlan = USUAL,
    kept: int = 0,
    timeout: float = TIMEOUT,
) -> tuple[dict[str, Any], bool]:
    """The result of the run, and whether this is the first of its processes: only that one speaks. `kept`: points of the
    training at which its weights are kept to be drawn with; `timeout`: seconds that a process waits for another."""
    require_seed(order.seed)
    trackers = tracking(track, RunLabels("runs", order.phrase, order.seed))
    watchers = together(previewing(plan), keeping(kept), sessions, trackers)
    with start(order.system.device, timeout) as ranks:
        require_agreement(ranks, "what to draw and keep", {"previews": list(plan), "--keep-checkpoints": kept})
        return perform(order, say if ranks.first else _unheard, watchers, ranks), ranks.first


def _unheard(text: str) -> None:
    """What all processes would say is said once."""
