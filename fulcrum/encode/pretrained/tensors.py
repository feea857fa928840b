"""Plain tensors of a weight file into a module whose names they carry: every one accounted for, no code is run."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from fulcrum.spec.errors import BadInput


def read_tensors(
    network: nn.Module, path: Path, unread: tuple[str, ...] = (), renamed: dict[str, str] | None = None
) -> None:
    """Fill a network (it may stand on the meta device) from .safetensors, or .pth read as tensors only; frozen after.

    `unread`: names that the file may hold besides. `renamed`: beginning of a name in the file -> in the network.
    """
    if not path.is_file():
        raise BadInput(f"there are no weights at {path}", "give a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors: Any = load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)  # a pickle could run code: tensors only
    except Exception as error:  # many kinds; the file is what is wrong
        raise BadInput(
            f"{path} cannot be read as a state dict: {type(error).__name__}: {str(error)[:200]}",
            "expected tensors under the network's names",
        ) from error
    if not isinstance(tensors, dict):
        raise BadInput(f"{path} holds a {type(tensors).__name__}, not a state dict")
    for old, new in (renamed or {}).items():
        tensors = {new + name.removeprefix(old) if name.startswith(old) else name: value for name, value in tensors.items()}
    wanted = network.state_dict()
    own = {name: value for name, value in tensors.items() if name in wanted}
    missing = sorted(name for name in wanted if name not in own and not name.endswith("num_batches_tracked"))
    wrong = sorted(name for name, value in own.items() if value.shape != wanted[name].shape)
    over = sorted(name for name in tensors if name not in wanted and name not in unread)
    if missing or wrong or over:
        raise BadInput(
            f"{path} does not fit {type(network).__name__}: {len(missing)} tensors are missing, {len(wrong)} "
            f"have another shape, {len(over)} are left over, such as {(missing + wrong + over)[0]}",
            "the file belongs to another network",
        )
    counters = {name: torch.tensor(0) for name in wanted if name not in own}
    floats = {name: value.float() if value.is_floating_point() else value for name, value in own.items()}
    network.load_state_dict({**floats, **counters}, assign=True)
    network.eval().requires_grad_(False)
