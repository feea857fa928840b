"""AdamW (arXiv:1711.05101): torch's fused kernel over state that is kept by parameter name.

Fused, because one pass over memory beats many: 2.2 M pocket parameters take 2.4 ms fused, 12 ms foreach, 8 ms one by
one on one AVX2 core.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.dist.mesh import copies
from fulcrum.optim.optimizer_state import gradient, local
from fulcrum.optim.rule import NamedRule
from fulcrum.optim.storage import count_stalled

ADAMW_CHUNK = (
    2**18
)  # elements whose bf16 state is widened to fp32 at a time: bounds the temporary memory, and stays in the cache


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
        self.first = {name: torch.zeros_like(p, dtype=state, requires_grad=False) for name, p in parameters.items()}
        self.second = {name: torch.zeros_like(p, dtype=state, requires_grad=False) for name, p in parameters.items()}
        # One count per parameter: one without a gradient (its term is off) is skipped and must not age.
        self.count = {name: torch.zeros((), device=p.device) for name, p in parameters.items()}
        self.slots = {"first": self.first, "second": self.second, "count": self.count}
        self.moments = {name: (local(self.first[name]), local(self.second[name])) for name in parameters}  # on this rank

    @torch.no_grad()
    def step(self, scale: float = 1.0, watch: bool = False, at: int = 0, counts: Tensor | None = None) -> None:
        stalled = [self._step_chunk(names, scale, watch, at, counts) for names in self._chunks()]
        self.stalled = torch.stack(stalled).sum(0) if watch else None

    def _step_chunk(self, names: list[str], scale: float, watch: bool, at: int, counts: Tensor | None) -> Tensor:
        none = torch.zeros(2, dtype=torch.float64, device=next(iter(self.count.values())).device if self.count else None)
        if not names:
            return none
        weights = [local(self.parameters[name]) for name in names]
        before = [weight.clone() for weight in weights] if watch else []
        first, second = [self.moments[name][0] for name in names], [self.moments[name][1] for name in names]
        if self.state_dtype != torch.float32:
            stored = first + second
            first, second = [m.float() for m in first], [v.float() for v in second]
        ages = [self.count[name] for name in names]
        torch._foreach_add_(ages, 1 if counts is None else [counts.float()] * len(ages))  # a bare tensor would be read
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
            found_inf=None if counts is None else (~counts).float(),
        )
        if self.state_dtype != torch.float32:
            for narrow, wide in zip(stored, first + second, strict=True):
                narrow.copy_(wide)
        self.store.keep({name: self.parameters[name] for name in names}, at)
        if not watch or scale * self.lr == 0:
            return none
        held_by = [copies(self.parameters[name]) for name in names]
        stalled = count_stalled(before, weights, first, held_by)  # the update is zero exactly where the first moment is
        return stalled if counts is None else stalled * counts

    def _chunks(self) -> Iterator[list[str]]:
        """Names with a gradient: all at once in fp32, in bounded chunks when the state must be widened."""
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
