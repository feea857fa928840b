"""Studies in one process: cells without workers to wait for, measured with fewer pictures, by one
cache for all of them."""

import json
import tempfile
from pathlib import Path

from fulcrum.levers.catalog import CATALOG
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview
from fulcrum.studies import arm_cost
from fulcrum.studies import study as study_run
from fulcrum.studies.runner import Lane
from fulcrum.studies.worker import answer

# what cells encode and hold their pictures against
KEPT = tempfile.TemporaryDirectory(prefix="fulcrum-cells-")


class Here(Lane):
    """Runs cells in this process: no start of a worker to wait for."""

    def ask(self, cell):
        return answer(json.loads(json.dumps(self.work.asked(cell))), self.work.setup(), CATALOG)


def all_here(patch):
    lighten(patch)
    patch.setattr(study_run, "Lane", Here)
    patch.setattr(arm_cost, "ROUNDS", 1)
    freeze = study_run.freeze

    def freeze_beside_the_cache(plan, out, user_files):
        keep_cache(out)
        return freeze(plan, out, user_files)

    patch.setattr(study_run, "freeze", freeze_beside_the_cache)


def keep_cache(out):
    """What a study encodes is named by what decides it: a second study of the same pictures finds
    it, as a user's does."""
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "cache").exists():
        (out / "cache").symlink_to(Path(KEPT.name), target_is_directory=True)


def lighten(patch):
    """Cells measured with fewer pictures."""
    patch.setattr(run_evaluation, "REFERENCE", 512)
    patch.setattr(run_evaluation, "VALIDATION", 128)
    patch.setattr(preview, "LOOKS", 2)
