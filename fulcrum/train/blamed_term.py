"""Which term of the loss made a backward pass fail: each is tried alone, so that its own file is named and not torch."""

from fulcrum.flow.draw import Draw
from fulcrum.networks.batch import Batch
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import home
from fulcrum.train.build import Built

_IN_PLACE = "modified by an inplace operation"  # what torch says


def require_no_edit(error: RuntimeError, built: Built, batch: Batch, draw: Draw, images: int) -> None:
    """BadInput with the name and the file of the term that wrote over a tensor which the gradient needs; of any other
    error nothing is said."""
    if _IN_PLACE not in str(error):
        return
    weights = built.weights(images)
    alone = [name for name in weights if _fails({name: weights[name]}, built, batch, draw)]
    names = alone or list(weights)  # none alone: one wrote over what another reads
    homes = {term.name: home(term) for term in built.run.terms}
    own = [name for name in names if homes.get(name)] or names
    raise BadInput(
        f"the term '{own[0]}'{homes.get(own[0], '')} changes a tensor in place that the gradient still needs",
        "write x = x + 1, not x += 1 or x.add_(1): what a term is given belongs to all of them",
    ) from error


def _fails(weights: dict[str, float], built: Built, batch: Batch, draw: Draw) -> bool:
    try:
        built.step(batch, draw, weights).total.backward()  # type: ignore[no-untyped-call]  # of torch
    except RuntimeError as error:
        return _IN_PLACE in str(error)
    return False
