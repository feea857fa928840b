"""One step of any module, watched: in which number formats norms, softmax, rotary positions, time and loss really ran.

A dispatch mode sees every operation after autocast, FSDP and the module's own casts, and hands it on as it is. Random state
and buffers are put back afterwards, gradients are not touched. `where` is read from Python's own frames: no hooks.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fulcrum.advise.audit_target import Audit
from fulcrum.advise.fault import stacked
from fulcrum.advise.own_evidence import NO_EVIDENCE, OwnEvidence
from fulcrum.advise.rule_judge import Judge
from fulcrum.advise.rules.rule_list import RULES
from fulcrum.advise.subjects.step_trace import Kind, RanOperation, StepTrace

FORMATS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}
LOW = (torch.bfloat16, torch.float16)
BITS = {torch.bfloat16: 8, torch.float16: 11}
NORMS = {"native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm", "rsqrt", "cudnn_batch_norm"}
SOFTMAXES = {"_softmax", "_log_softmax", "_safe_softmax"}
ANGLES = {"cos", "sin", "polar"}
CASTS = {"_to_copy", "to", "clone", "copy_"}
TIMES = ("t", "time", "timestep", "timesteps", "sigma", "sigmas", "noise_level")
TABLES = ("rope", "rotary", "freqs_cis", "freqs_cos", "freqs_sin", "cos_cached", "sin_cached")
CARRIED = 4096  # numbers of a tensor up to which it is still the time, not what the network made of it


class StepTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every operation and changes none."""

    def __init__(self, names: Mapping[int, str], times: Sequence[Tensor], tables: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.count = names, 0
        self.operations: dict[tuple[Kind, str, str, str], int] = {}
        self.last_scalar: tuple[str, str, str] | None = None
        self._times = {id(one): ref(one) for one in times}
        self._tables = {id(one): ref(one) for one in tables}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.count += 1
        name = function.overloadpacket.__name__
        given = [one for one in tree_leaves(args) if isinstance(one, Tensor) and one.is_floating_point()]
        if not given:
            return result
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if name in NORMS:
            self._note("norm", name, given[:1])
        elif name in SOFTMAXES:
            self._note("softmax", name, given[:1])
        self._follow_time(name, given, made)
        self._follow_table(name, given, made)
        if made and made[0].ndim == 0 and made[0].is_floating_point() and given[0].ndim > 0:
            self.last_scalar = (name, _formats(given), self._place())
        return result

    def _follow_time(self, name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """The time, and what is only it in another form, until it is an angle's cosine or goes into a product."""
        mine = [one for one in given if self._is(one, self._times)]
        if not mine:
            return
        low = [one for one in (*mine, *made) if one.dtype in LOW]
        if low:
            self._note("time", name, low[:1])
        elif name not in CASTS:
            self._note("time", name, mine[:1])
        if name in ANGLES:
            return
        for one in made:
            if one.is_floating_point() and one.numel() <= CARRIED and name not in ("mm", "addmm", "bmm", "linear"):
                self._times[id(one)] = ref(one)

    def _follow_table(self, name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """What is multiplied by a cosine or sine of positions; those of the time embedding stand in another place."""
        if name in ANGLES and not any(self._is(one, self._times) for one in given):
            self._note("rotary", name, given[:1])
            self._tables.update({id(one): ref(one) for one in made})
        elif any(self._is(one, self._tables) for one in given):
            if name in ("mul", "mul_"):
                self._note("rotary", name, given)
            elif name in (
                *CASTS,
                "view",
                "unsqueeze",
                "slice",
                "index",
                "index_select",
                "select",
                "expand",
                "repeat",
                "cat",
                "stack",
                "transpose",
                "permute",
                "alias",
                "detach",
            ):
                self._tables.update({id(one): ref(one) for one in made})

    @staticmethod
    def _is(tensor: Tensor, known: Mapping[int, Any]) -> bool:
        held = known.get(id(tensor))
        return held is not None and held() is tensor

    def _note(self, kind: Kind, name: str, given: Sequence[Tensor]) -> None:
        key = (kind, name, _formats(given), self._place())
        self.operations[key] = self.operations.get(key, 0) + 1

    def _place(self) -> str:
        """The innermost module of the user's whose code is running, and the line outside torch."""
        frame, line, module = sys._getframe(2), "", ""
        while frame is not None and not module:
            owner = frame.f_locals.get("self")
            file = frame.f_code.co_filename
            if not line and "/torch/" not in file and file != __file__:
                line = f"{Path(file).name}:{frame.f_lineno}"
            if isinstance(owner, nn.Module):
                module = self.names.get(id(owner), "")
            frame = frame.f_back  # type: ignore[assignment]
        return " at ".join(part for part in (module, line) if part) or "outside the module"


def probe_step(
    module: nn.Module,
    *args: Any,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    times: Sequence[Tensor] = (),
    **kwargs: Any,
) -> StepTrace:
    """Run `loss(module(*args, **kwargs))` once and say in which formats its sensitive operations ran.

    `times` are the tensors that hold the time; arguments called t, timestep or sigma are found by themselves. Wrap the call
    in your own torch.autocast if you train under one. Nothing is changed: no gradients, no statistics, no random state.
    """
    known = [value for name, value in kwargs.items() if name in TIMES and isinstance(value, Tensor)]
    tables = [value for name, value in module.named_buffers() if any(word in name.lower() for word in TABLES)]
    names = {id(one): name or type(module).__name__ for name, one in module.named_modules()}
    tracer = StepTracer(names, [*times, *known, *_named_arguments(module, args)], tables)
    with _untouched(module), tracer:
        output = module(*args, **kwargs)
        if loss is not None:
            loss(output)
    operations = [RanOperation(*key, times=count) for key, count in tracer.operations.items()]
    if loss is not None and tracer.last_scalar is not None:
        operations.append(RanOperation("loss", *tracer.last_scalar))
    return StepTrace(operations, *_stored(module, optimizer), tracer.count)


def audit_step(module: nn.Module, *args: Any, evidence: OwnEvidence = NO_EVIDENCE, **kwargs: Any) -> Audit:
    """`probe_step`, judged by the rules: the same faults as `fulcrum audit` tells."""
    trace = probe_step(module, *args, **kwargs)
    judge = Judge(evidence)
    faults = [judge.fault(rule, one, one.place) for rule in RULES for one in rule.in_step(trace)]
    name = type(module).__name__
    return Audit(
        name, "probed step", f"{trace.ran:,} operations, {len(trace.operations)} of them sensitive", stacked(faults), []
    )


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Buffers and random state as they were; nothing is written into gradients because nothing goes backward."""
    buffers = {name: value.detach().clone() for name, value in module.named_buffers()}
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in module.named_buffers():
                    if name in buffers and not torch.equal(value, buffers[name]):
                        value.copy_(buffers[name])


def _named_arguments(module: nn.Module, args: Sequence[Any]) -> list[Tensor]:
    """Positional arguments that the module's forward calls t, timestep or sigma."""
    from inspect import signature

    try:
        parameters = list(signature(module.forward).parameters)
    except (TypeError, ValueError):
        return []
    return [value for name, value in zip(parameters, args, strict=False) if name in TIMES and isinstance(value, Tensor)]


def _stored(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> tuple[dict[str, str], dict[str, str], float]:
    """Formats of what is trained and of what the optimizer remembers, and the share of updates that would be lost."""
    trained = {name: _format(value.dtype) for name, value in module.named_parameters() if value.requires_grad}
    names = {id(value): name for name, value in module.named_parameters()}
    if optimizer is None:
        return trained, {}, 0.0
    state = {
        f"{names.get(id(parameter), '?')}.{moment}": _format(value.dtype)
        for parameter, moments in optimizer.state.items()
        for moment, value in moments.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 0
    }
    lost, numbers = 0.0, 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            numbers += parameter.numel()
            lost += _lost(parameter.detach(), float(group.get("lr", 0.0))) * parameter.numel()
    return trained, state, lost / max(numbers, 1)


def _lost(weights: Tensor, rate: float) -> float:
    """Share of some of the weights that an update of `rate` cannot move."""
    if weights.dtype not in BITS or not rate:
        return 0.0
    from fulcrum.advise.rules.precision.updates_round_away import lost_share

    sampled = weights.reshape(-1)[:: max(weights.numel() // 4096, 1)].float().cpu().numpy()
    return lost_share(sampled, rate, BITS[weights.dtype])


def _formats(tensors: Sequence[Tensor]) -> str:
    return " and ".join(sorted({_format(one.dtype) for one in tensors}))


def _format(dtype: torch.dtype) -> str:
    return FORMATS.get(dtype, str(dtype).removeprefix("torch."))
