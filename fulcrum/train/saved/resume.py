"""Going on: the newest good checkpoint is put into a run that was built anew."""

from collections.abc import Callable

from fulcrum.train.build import Built
from fulcrum.train.saved import checkpoint
from fulcrum.train.saved.checkpoint import VerifiedCheckpoint
from fulcrum.train.saved.run_folder import RunFolder
from fulcrum.train.saved.saver import live_parts
from fulcrum.train.state import State


def resume(built: Built, folder: RunFolder, say: Callable[[str], None]) -> State:
    """Put the newest good checkpoint into the built run; a new run begins at zero."""

    def require(found: VerifiedCheckpoint) -> None:
        checkpoint.require_same(found, live_parts(built))

    saved = checkpoint.newest(folder.checkpoints, say, built.run.budget.batch, folder.path.name, built.ranks, require)
    if saved is None:
        return State()
    if differences := built.system.differences(saved.system):
        say("resuming under another system, so results may differ in the last bits: " + "; ".join(differences))
    if built.ranks.size > 1:
        from fulcrum.train.saved.sharded import load_sharded  # 4 s to import; one process does without

        parts = live_parts(built)
        load_sharded(saved, parts)
    else:
        parts = {part: dict(tensors) for part, tensors in checkpoint.read(saved).parts.items()}
        built.step.load_state_dict(parts["model"])
        built.optimizer.load(dict(parts["optimizer"]))
    built.average.load(parts["average"])
    say(f"resumed at {saved.state.images:,} images")
    return saved.state
