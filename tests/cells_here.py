"""Studies in one process: cells without workers to wait for, measured with fewer pictures."""

import json

from fulcrum.levers.catalog import CATALOG
from fulcrum.study import study_run
from fulcrum.study.run import arm_cost
from fulcrum.study.run.measuring import preview, run_evaluation
from fulcrum.study.run.workers.runner import Lane
from fulcrum.study.run.workers.worker import answer


class Here(Lane):
    """Runs cells in this process: no start of a worker to wait for."""

    def ask(self, cell):
        return answer(json.loads(json.dumps(self.work.asked(cell))), self.work.setup(), CATALOG)


def all_here(patch):
    lighten(patch)
    patch.setattr(study_run, "Lane", Here)
    patch.setattr(arm_cost, "ROUNDS", 1)


def lighten(patch):
    """Cells measured with fewer pictures."""
    patch.setattr(run_evaluation, "REFERENCE", 512)
    patch.setattr(run_evaluation, "VALIDATION", 128)
    patch.setattr(preview, "LOOKS", 2)
