"""The hash of a frozen network's weights, made once for a network: a large text encoder takes seconds each time."""

import hashlib
import json
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fulcrum.encode.networks.protocols import FrozenNetwork

_hashed: "WeakKeyDictionary[nn.Module, tuple[Any, str]]" = WeakKeyDictionary()  # what was looked at, and its hash


def network_hash(network: FrozenNetwork) -> str:
    """Class, its revision, configuration and every weight: two networks with the same hash compute the same.

    The weights of a network are looked at again when one of them was written to or lies elsewhere."""
    about = [type(network).__qualname__, getattr(network, "config", None)]
    about += [network.revision] if hasattr(network, "revision") else []
    head, weights = json.dumps(about, sort_keys=True), network.state_dict()
    seen = (head, [(name, _place(value)) for name, value in weights.items()])
    known = _hashed.get(network) if isinstance(network, nn.Module) else None
    if known is not None and known[0] == seen:
        return known[1]
    content = _content(head, weights)
    if isinstance(network, nn.Module):
        _hashed[network] = (seen, content)
    return content


def _content(head: str, weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(head.encode())
    for name, value in weights.items():
        value = value.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _place(value: Tensor) -> Any:
    """Where a weight lies and how often it was written to; a tensor that does not count that is never the same again."""
    if value.is_inference():
        return object()
    return str(value.device), value.data_ptr(), value._version, str(value.dtype), tuple(value.shape)
