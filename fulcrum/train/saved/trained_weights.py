"""What a trained run draws with: read from its newest checkpoint, and held against the result that the run wrote."""

from typing import Any

from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.train.drawing.sampling_weights import drawn_parts
from fulcrum.train.saved import checkpoint
from fulcrum.train.saved.checkpoint import weights_hash
from fulcrum.train.saved.run_folder import RunFolder, require_parts

AGAIN = "its last checkpoint was removed, replaced or damaged: 'fulcrum runs rm' it and train it again"


def trained_weights(folder: RunFolder, averaged: bool = True) -> dict[str, Any]:
    """What a run draws with, of the newest checkpoint: see `drawn_parts`. Not `averaged`: its last weights in any case."""
    if not folder.path.is_dir():
        raise BadInput(f"there is no run at {folder.path}", "list the runs with: fulcrum runs list")
    require_parts(folder.about())
    checkpoints, result = checkpoint.listing(folder.checkpoints), folder.result()
    if not checkpoints and result is not None:
        raise RunFailed(f"the run {folder.path.name} is finished, and its checkpoints are gone", AGAIN)
    if not checkpoints:
        raise BadInput(f"the run {folder.path.name} has no checkpoint yet", "train it first")
    try:
        saved = checkpoint.load(checkpoints[-1])
    except RunFailed as error:
        raise RunFailed(
            error.message, AGAIN if result is not None else "train it further: it goes on from the checkpoint before"
        ) from error
    if saved.key != folder.path.name:
        raise RunFailed(
            f"the checkpoint in {folder.path} belongs to the run {saved.key}",
            "it was copied there: remove the run with 'fulcrum runs rm' and train it again",
        )
    weights = drawn_parts(saved.parts)
    if result is not None and weights_hash(weights) != result.get("weights_sha256"):
        raise RunFailed(
            f"the newest checkpoint of {folder.path.name} does not hold the weights that the run ended with", AGAIN
        )
    return weights if averaged else drawn_parts({"model": saved.parts["model"]})
