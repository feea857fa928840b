"""A device that is not the CPU, where there is no other: no operation may read its memory and the
CPU's together.

It computes with the CPU's kernels, so results can be compared bit for bit, and refuses what a GPU
refuses: an operation on tensors of two devices, a CPU generator for its own tensors, `numpy()`
without `cpu()`. As on a GPU a number (a tensor without axes) may come from the CPU into elementwise
arithmetic. Registered as torch's "private use" backend under the name `strange`; process-wide and
before the first backward pass, so tests start a process of their own.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "strange"
aten = torch.ops.aten
# what brings a tensor from one device to another
CROSSING = {aten._to_copy.default, aten.copy_.default}
ASKING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.equal.default,
    aten.masked_select.default,
}
# where the host would wait for a GPU: it reads from it, or hands over what is not pinned
WAITS: Counter[str] = Counter()


class Mixed(RuntimeError):
    """An operation saw tensors of two devices."""


class Far(Tensor):
    """A tensor of the strange device; `near` is its memory."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "Far":
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined,no-any-return]
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            layout=near.layout,
            device=torch.device(NAME, 0),
        )

    def __init__(self, near: Tensor) -> None:
        self.near = near

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property  # type: ignore[override]
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        """Take over another's memory, as `weight.data = other` does; torch's own would only take
        its shape."""
        if not isinstance(value, Far):
            raise Mixed(f"the memory of '{value.device}' was given to a tensor of '{NAME}'")
        self.near = value.near

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation: refused if it mixes devices, else by the CPU's kernel."""
    given = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
    far = [one for one in given if isinstance(one, Far)]
    wanted = kwargs.get("device")
    made_far = bool(far) if wanted is None else torch.device(wanted).type == NAME
    if far and func not in CROSSING:
        numbers = torch.Tag.pointwise in func.tags or "_foreach" in str(func)
        near = [
            one for one in given if not isinstance(one, Far) and not (numbers and one.ndim == 0)
        ]
        if near:
            raise Mixed(
                f"{func} got tensors of '{NAME}' and of '{near[0].device}' {tuple(near[0].shape)}"
            )
        if kwargs.get("generator") is not None:
            raise Mixed(f"{func} got a generator of the CPU for a tensor of '{NAME}'")
    lands_far = isinstance(given[0], Far) if func is aten.copy_.default else made_far
    if (far and func in ASKING) or (func in CROSSING and lands_far != isinstance(given[-1], Far)):
        WAITS[place()] += 1
    if func is aten.copy_.default:
        args[0].near.copy_(_near(args[1])) if isinstance(args[0], Far) else args[0].copy_(
            _near(args[1])
        )
        return args[0]
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu") if made_far else wanted}
    found = func(
        *mapped(_near, args), **{name: mapped(_near, value) for name, value in kwargs.items()}
    )
    if func is aten._local_scalar_dense.default or not made_far:
        return found
    out = mapped(Far, found)
    return return_and_correct_aliasing(func, args, kwargs, out) if far and wanted is None else out


def place() -> str:
    """The innermost line of the package that is being executed, by file and function."""
    frames = [frame for frame in traceback.extract_stack() if "/fulcrum/" in frame.filename]
    return (
        f"{frames[-1].filename.rpartition('/fulcrum/')[2]} {frames[-1].name}"
        if frames
        else "elsewhere"
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Operators take tensors, and lists of them; torch's own walk over trees takes longer than a
    small operation."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors_in(one)


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    return (
        type(value)([mapped(change, one) for one in value])
        if type(value) in (list, tuple)
        else value
    )


def _near(tensor: Tensor) -> Tensor:
    return tensor.near if isinstance(tensor, Far) else tensor


class Strange(TorchDispatchMode):
    """While it is entered, tensors can be made on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def register() -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    # torch.tensor(..., device=) makes it here and brings it over
    torch._C._set_only_lift_cpu_tensors(True)
    _setup_privateuseone_for_python_backend(NAME)
