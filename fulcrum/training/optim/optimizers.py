"""Optimizer state, storage formats, parameter groups, AdamW and the learning-rate schedule."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.spec.errors import BadInput
from fulcrum.training.dist.collectives import copies, first_element, gradient, local
from fulcrum.training.optim.fillers import rounding_seed

# --------------------------------------------------------------------------------------------------
# Stochastic rounding to bf16: up or down at random, in proportion to the distance, so that the mean
# is kept.
#
# The random number of an element comes from (seed, step, parameter's name, its index in the whole
# parameter) and from nothing else: shards round exactly as one process does, a resumed run as one
# that was never stopped.
#
# Cost on one AVX2 core: 4.4 ns a parameter and step beside 0.6 ns to nearest (2.2 M parameters: 9.6
# ms more).


CHUNK = 2**15  # elements at a time: a few hundred kB of integers that stay in the cache of one core


def keys(seed: int, at: int, name: str) -> tuple[int, int]:
    """Two signed 32-bit keys of one parameter at one step."""
    digest = hashlib.sha256(f"{seed}/rounding/{at}/{name}".encode()).digest()
    return (
        int.from_bytes(digest[:4], "little", signed=True),
        int.from_bytes(digest[4:8], "little", signed=True),
    )


@cache
def counting(device: torch.device) -> Tensor:
    """0, 1, 2 … once per device: making it costs more than a third of the hash."""
    return torch.arange(CHUNK // 2 + 1, dtype=torch.int32, device=device)


def random_bits(first: int, count: int, key: tuple[int, int], device: torch.device) -> Tensor:
    """(count,) int32 in [0, 2^16) of the elements first, first + 1 …; an integer hash of
    `lowbias32`'s rounds.

    One hash of 32 bits serves two elements, the even one by its lower half. Products and sums wrap,
    as a hash wants; torch shifts signed numbers arithmetically, so the ones that come in are masked
    off.
    """
    pair, odd = divmod(first, 2)
    start = (pair + key[0] + 2**31) % 2**32 - 2**31  # as a signed number
    x = counting(device)[: (odd + count + 1) // 2] + start
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    x *= 0x7FEB352D
    x ^= key[1]
    x ^= (x >> 15).bitwise_and_(0x1FFFF)
    x *= 0x846CA68B - 2**32
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    return x.view(torch.uint16)[odd : odd + count].to(torch.int32)


@torch.no_grad()
def round_at_random(weight: Tensor, key: tuple[int, int], first: int = 0) -> None:
    """Round fp32 values in place to one of the two bf16 neighbours; `weight` begins at element
    `first` of the whole.

    A bf16 number is the upper half of an fp32 one: 16 random bits are added to the lower half,
    which is then cut off, so a value goes up with the probability of its lower half / 2^16. What is
    representable stays; so does infinity. Beyond 2^33 elements in one parameter the random numbers
    repeat.
    """
    if weight.dtype != torch.float32 or not weight.is_contiguous():
        raise ValueError(
            f"rounding works in place on contiguous fp32 weights, found {weight.dtype}, strides"
            f" {weight.stride()}"
        )
    bits = weight.view(-1).view(torch.int32)
    for begin in range(0, len(bits), CHUNK):
        chunk = bits[begin : begin + CHUNK]
        chunk.add_(random_bits(first + begin, len(chunk), key, bits.device)).bitwise_and_(-0x10000)


# --------------------------------------------------------------------------------------------------
# Stored numbers: what precision weights and gradients keep, and how many updates that precision
# swallows.
#
# Weights stored in bf16 are held as fp32 tensors whose values are exactly representable in bf16. A
# bf16 parameter would force bf16 gradients too (torch ties the two dtypes), and gradient
# accumulation, clipping and reduction would change with the lever: two decisions at once. This way
# only the storage differs, and compute and compile stay as they are. What it does not do here is
# save memory in training: 4 bytes a weight, as before. A checkpoint may write such weights as bf16
# without loss (2 bytes), and real bf16 parameters would save 4 bytes a weight (weight and
# gradient).


STORED = (torch.float32, torch.bfloat16)


def require_storable(dtype: torch.dtype, what: str) -> None:
    if dtype not in STORED:
        raise ValueError(f"{what} is {dtype}; expected torch.float32 or torch.bfloat16")


class StoredWeights(NamedTuple):
    """How weights are kept: the precision, and how an update is rounded to it."""

    dtype: torch.dtype = torch.float32
    #: of rounding up or down at random; None rounds to nearest, ties to even
    seed: int | None = None

    @torch.no_grad()
    def start(self, parameters: Mapping[str, Tensor]) -> None:
        """The weights that a run begins from must be storable as well: to nearest, however updates
        are rounded."""
        require_storable(self.dtype, "precision.storage")
        self._replace(seed=None).keep(parameters, at=0)

    @torch.no_grad()
    def keep(self, parameters: Mapping[str, Tensor], at: int) -> None:
        """Round this rank's part of fp32 weights in place; `at` is the step, in images seen before
        it."""
        if self.dtype == torch.float32:
            return
        for name, parameter in parameters.items():
            weight = local(parameter)
            if self.seed is None:
                weight.copy_(weight.to(self.dtype))
            else:
                round_at_random(weight, keys(self.seed, at, name), first_element(name, parameter))


@torch.no_grad()
def keep_gradients(parameters: Iterable[Tensor], dtype: torch.dtype) -> None:
    """Round gradients in place to what the dtype can hold, once, when all parts of a batch are in
    them: a model whose weights are bf16 tensors gets such gradients from its backward pass, and how
    often they are rounded would otherwise depend on how many parts and processes a batch is shared
    among."""
    if dtype == torch.float32:
        return
    for parameter in parameters:
        if (whole := gradient(parameter)) is not None:
            whole.copy_(whole.to(dtype))


@torch.no_grad()
def count_stalled(
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    update: Sequence[Tensor],
    held_by: Sequence[int] | None = None,
) -> Tensor:
    """(2,) [elements whose non-zero update left the stored weight as it was, elements with a
    non-zero update].

    Rounded to nearest, such an update is lost. Rounded at random, it is not: others of its size
    moved by a whole step. `held_by` says how many processes hold, and count, each of the tensors:
    all of them together count it once.
    """
    counts = torch.zeros(2, dtype=torch.float64, device=after[0].device if after else None)
    for old, new, change, times in zip(
        before, after, update, held_by or [1] * len(after), strict=True
    ):
        moving = change != 0
        counts[0] += (moving & (old == new)).sum().double() / times
        counts[1] += moving.sum().double() / times
    return counts


def stalled_share(counts: Iterable[float] | Tensor) -> float:
    """The watchdog's number: the share of updates that rounded to nothing (0 if nothing was to be
    updated)."""
    stalled, moving = map(float, counts)
    return stalled / moving if moving else 0.0


# --------------------------------------------------------------------------------------------------
# Which rule updates which parameter: decided by roles, never by parts of a name.


def groups(
    named_parameters: Iterable[tuple[str, Parameter]],
    roles: Mapping[str, str],
    rule: Mapping[str, str],
) -> dict[str, dict[str, Parameter]]:
    """Deal the trainable parameters to groups: {group: {parameter name: parameter}}.

    `roles` gives each parameter's role (matrix, embed, head, vector), `rule` each role's group,
    e.g. `{"matrix": "muon", "embed": "adamw", "head": "adamw", "vector": "adamw"}`. Every trainable
    parameter ends in exactly one group, or this raises. A frozen parameter (requires_grad=False) is
    in none; a group is empty only if all that would be in it are frozen, or this raises too.
    """
    all_named = list(named_parameters)
    stray = sorted(set(roles) - {name for name, _ in all_named})
    if stray:
        raise ValueError(
            f"roles were declared for {stray[:3]}, which the model does not have; "
            "take the roles and the parameters from the same module"
        )
    dealt: dict[str, dict[str, Parameter]] = {group: {} for group in rule.values()}
    first_name: dict[int, str] = {}
    for name, parameter in all_named:
        if not parameter.requires_grad:
            continue
        if id(parameter) in first_name:
            raise ValueError(
                f"parameter {name!r} is the same tensor as {first_name[id(parameter)]!r} and would"
                " be updated twice; list a shared parameter once (named_parameters() does so by"
                " itself)"
            )
        first_name[id(parameter)] = name
        if name not in roles:
            raise ValueError(
                f"parameter {name!r} {tuple(parameter.shape)} has no role; "
                "declare matrix, embed, head or vector in the module where it is born"
            )
        role = roles[name]
        if role not in rule:
            raise ValueError(
                f"parameter {name!r} has the role {str(role)!r}, but the optimizer places only "
                f"{sorted(str(known) for known in rule)}; give that role a group"
            )
        dealt[rule[role]][name] = parameter
    frozen = {
        rule.get(roles[name])
        for name, parameter in all_named
        if not parameter.requires_grad and name in roles
    }
    empty = [group for group, members in dealt.items() if not members and group not in frozen]
    if empty:
        raise ValueError(
            f"the optimizer's group {empty[0]!r} got no parameter, so it would do nothing; "
            f"the model has the roles {sorted({str(role) for role in roles.values()})}"
        )
    return dealt


# --------------------------------------------------------------------------------------------------
# What every update rule offers, and several rules acting as one.


class Rule(Protocol):
    """One update rule over the parameters it was built with."""

    store: StoredWeights
    """How it keeps the weights."""
    stalled: Tensor | None
    """(2,) of the last watched step, this rank's elements: [update rounded to nothing, update was
    not zero]."""

    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0) -> None:
        """Update the weights with `scale` times the rule's own learning rate; `watch` counts
        stalled elements.

        `at` says which step this is, in images seen before it: random rounding is keyed by it.
        """

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def state(self) -> dict[str, Tensor]:
        """The live state by "<slot>/<parameter name>"; sharded like its parameter. Not a copy: a
        checkpoint is read into these tensors."""


class NamedRule:
    """What the rules here share: parameters by name, how their weights are kept, their state."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        storage: torch.dtype,
        rounding: int | None,
        state: torch.dtype,
    ) -> None:
        require_storable(state, "precision.optimizer")
        self.parameters, self.store = dict(parameters), StoredWeights(storage, rounding)
        self.stalled: Tensor | None = None
        # what it remembers: slot -> parameter's name -> tensor
        self.slots: dict[str, dict[str, Tensor]] = {}
        self.store.start(self.parameters)

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        return {
            f"{slot}/{name}": tensor
            for slot, held in self.slots.items()
            for name, tensor in held.items()
        }


class UpdateRule(NamedRule):
    """Base class of an update rule that treats every parameter by itself: override `update`.

    Done here for all such rules: the state by name (saved, loaded, sharded as its parameter, stored
    in `precision.optimizer`), weights stored in bf16 and their rounding, a learning rate for each
    parameter, and the count of updates that round to nothing.

        class Lion(UpdateRule):
            memory = ("momentum",)

            def update(self, weight, gradient, memory, lr):
                direction = memory["momentum"].lerp(gradient, 0.1).sign()
                weight.sub_(lr * direction)
                memory["momentum"].lerp_(gradient, 0.01)
                return direction
    """

    #: names of the tensors that it keeps for each parameter, zero at the start
    memory: ClassVar[tuple[str, ...]] = ()

    def __init__(self, ctx: Any, parameters: Mapping[str, Parameter] | None = None) -> None:
        """`ctx` is what `build` is given. It has all parameters of the run; a rule for some of them
        is given those by name."""
        given = ctx.parameters if parameters is None else parameters
        state = ctx.dtype("optimizer")
        super().__init__(given, ctx.dtype("storage"), rounding_seed(ctx), state)
        self.rates = {name: ctx.run.optim.lr * ctx.rates.get(name, 1.0) for name in given}
        self.slots = {
            slot: {
                name: torch.zeros_like(parameter, dtype=state, requires_grad=False)
                for name, parameter in given.items()
            }
            for slot in self.memory
        }

    def update(
        self, weight: Tensor, gradient: Tensor, memory: dict[str, Tensor], lr: float
    ) -> Tensor:
        """Change one weight and what is remembered of it, in place. Return what was subtracted, up
        to its scale: an element that is zero there was not to move.

        All tensors are fp32, of one shape, and this process's part of the parameter: the result for
        an element must not depend on other elements.
        """
        raise BadInput(f"{type(self).__name__} has no update", "docs/write-a-lever.md")

    @torch.no_grad()
    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0) -> None:
        counts = []
        for name, parameter in self.parameters.items():
            slope = gradient(parameter)
            if slope is None:  # its term is off
                continue
            weight = local(parameter)
            before = weight.clone() if watch else weight
            kept = {slot: local(held[name]) for slot, held in self.slots.items()}
            memory = {slot: tensor.float() for slot, tensor in kept.items()}  # itself if it is fp32
            lr = self.rates[name] * scale
            direction = self.update(weight, slope, memory, lr)
            for slot, tensor in kept.items():
                if tensor.dtype != torch.float32:
                    tensor.copy_(memory[slot])
            self.store.keep({name: parameter}, at)
            if watch and lr:
                counts.append(count_stalled([before], [weight], [direction], [copies(parameter)]))
        self.stalled = None
        if watch:
            nothing = torch.zeros(2, dtype=torch.float64, device=self._device())
            self.stalled = sum(counts, nothing)

    def _device(self) -> torch.device | None:
        return next((parameter.device for parameter in self.parameters.values()), None)


class Joint:
    """Several rules that share a model, e.g. Muon for the matrices and AdamW for the rest."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        if not rules:
            raise ValueError(
                "Joint needs at least one rule, found none; pass e.g. [Muon(...), AdamW(...)]"
            )
        self.rules = list(rules)
        self.stalled: Tensor | None = None
        names = [name for rule in self.rules for name in rule.state()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"two rules own the same state {twice[:3]}: build each from its own group of"
                " groups()"
            )
        self.store = self.rules[0].store
        if any(rule.store != self.store for rule in self.rules):
            raise ValueError(
                "the rules of one model keep weights differently: give all the same storage and"
                " rounding"
            )

    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0) -> None:
        for rule in self.rules:
            rule.step(scale, watch, at)
        self.stalled = (
            torch.stack([rule.stalled for rule in self.rules if rule.stalled is not None]).sum(0)
            if watch
            else None
        )

    def zero_grad(self) -> None:
        for rule in self.rules:
            rule.zero_grad()

    def state(self) -> dict[str, Tensor]:
        return {name: tensor for rule in self.rules for name, tensor in rule.state().items()}


# --------------------------------------------------------------------------------------------------
# AdamW (arXiv:1711.05101): torch's fused kernel over state that is kept by parameter name.
#
# Fused, because one pass over memory beats many: 2.2 M pocket parameters take 2.4 ms fused, 12 ms
# foreach, 8 ms one by one on one AVX2 core.


ADAMW_CHUNK = (
    2**18
    # elements whose bf16 state is widened to fp32 at a time: bounds the temporary memory, and stays
    # in the cache
)


class AdamW(NamedRule):
    """Adam with decoupled weight decay; the defaults are the published baseline's."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-15,
        weight_decay: float = 0.0,
        storage: torch.dtype = torch.float32,
        state: torch.dtype = torch.float32,
        rounding: int | None = None,
    ) -> None:
        super().__init__(parameters, storage, rounding, state)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.state_dtype = state
        self.first = {
            name: torch.zeros_like(p, dtype=state, requires_grad=False)
            for name, p in parameters.items()
        }
        self.second = {
            name: torch.zeros_like(p, dtype=state, requires_grad=False)
            for name, p in parameters.items()
        }
        # One count per parameter: one without a gradient (its term is off) is skipped and must not
        # age.
        self.count = {name: torch.zeros((), device=p.device) for name, p in parameters.items()}
        self.slots = {"first": self.first, "second": self.second, "count": self.count}
        # on this rank
        self.moments = {
            name: (local(self.first[name]), local(self.second[name])) for name in parameters
        }

    @torch.no_grad()
    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0) -> None:
        stalled = [self._step_chunk(names, scale, watch, at) for names in self._chunks()]
        self.stalled = torch.stack(stalled).sum(0) if watch else None

    def _step_chunk(self, names: list[str], scale: float, watch: bool, at: int) -> Tensor:
        none = torch.zeros(
            2,
            dtype=torch.float64,
            device=next(iter(self.count.values())).device if self.count else None,
        )
        if not names:
            return none
        weights = [local(self.parameters[name]) for name in names]
        before = [weight.clone() for weight in weights] if watch else []
        first, second = (
            [self.moments[name][0] for name in names],
            [self.moments[name][1] for name in names],
        )
        if self.state_dtype != torch.float32:
            stored = first + second
            first, second = [m.float() for m in first], [v.float() for v in second]
        ages = [self.count[name] for name in names]
        torch._foreach_add_(ages, 1)
        torch._fused_adamw_(
            weights,
            [g for name in names if (g := gradient(self.parameters[name])) is not None],
            first,
            second,
            [],
            ages,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr * scale,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )
        if self.state_dtype != torch.float32:
            for narrow, wide in zip(stored, first + second, strict=True):
                narrow.copy_(wide)
        self.store.keep({name: self.parameters[name] for name in names}, at)
        if not watch or scale * self.lr == 0:
            return none
        held_by = [copies(self.parameters[name]) for name in names]
        # the update is zero exactly where the first moment is
        return count_stalled(before, weights, first, held_by)

    def _chunks(self) -> Iterator[list[str]]:
        """Names with a gradient: all at once in fp32, in bounded chunks when the state must be
        widened."""
        limit = float("inf") if self.state_dtype == torch.float32 else ADAMW_CHUNK
        names: list[str] = []
        size = 0
        for name, parameter in self.parameters.items():
            if parameter.grad is None:
                continue
            if names and size + parameter.numel() > limit:
                yield names
                names, size = [], 0
            names.append(name)
            size += parameter.numel()
        yield names
