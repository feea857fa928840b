"""What a term keeps for its backward, counted."""

import pytest
import torch


def numbers_kept(function, parameters):
    """Numbers that the backward keeps, parameters left out; each memory counts once."""
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = function()  # noqa: F841 - alive, so that no memory is used twice
    own = {p.untyped_storage().data_ptr() for p in parameters}
    return sum(size for place, size in sizes.items() if place not in own)


@pytest.fixture
def saved():
    return numbers_kept
