"""Averages of the weights: none, or an exponential moving average in fp32."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from fulcrum.dist.shard import cut
from fulcrum.optim.optimizer_state import local


class Average(Protocol):
    """Which weights pictures are drawn with."""

    def start(self, model: nn.Module) -> None: ...
    def update(self, model: nn.Module, counts: Tensor | None = None) -> None: ...  # as an optimizer's rule is told
    def take_back(self) -> None: ...  # the last update was told of a step that did not count
    def weights(self, model: nn.Module) -> dict[str, Tensor]: ...
    def state(self) -> dict[str, Tensor]: ...
    def load(self, state: Mapping[str, Tensor]) -> None: ...


class LastWeights:
    """No average: the model draws with the weights it has."""

    def start(self, model: nn.Module) -> None:
        pass

    def update(self, model: nn.Module, counts: Tensor | None = None) -> None:
        pass

    def take_back(self) -> None:
        pass

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in model.state_dict().items()}

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        if state:
            raise ValueError("this run keeps no average, but the checkpoint holds one")


class MovingAverage:
    """m <- decay m + (1 - decay) w, every few steps; begins as the first weights it sees."""

    def __init__(self, decay: float, every: int) -> None:
        self.decay, self.every, self.steps = decay, every, 0
        self.mean: dict[str, Tensor] = {}

    def start(self, model: nn.Module) -> None:
        self.mean = {name: value.detach().float().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, counts: Tensor | None = None) -> None:
        self.steps += 1
        if self.steps % self.every == 0:
            share = 1 - self.decay if counts is None else (1 - self.decay) * counts.float()
            for name, value in model.state_dict().items():
                local(self.mean[name]).lerp_(local(value).float(), share)

    def take_back(self) -> None:
        self.steps -= 1  # its share was none

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return dict(self.mean)

    def state(self) -> dict[str, Tensor]:
        return {**self.mean, "_steps": torch.tensor(self.steps)}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        if set(state) != {*self.mean, "_steps"}:
            raise ValueError("the averaged weights of the checkpoint are not those of this model")
        if any(state[name].shape != mean.shape for name, mean in self.mean.items()):
            raise ValueError("the averaged weights of the checkpoint have other shapes than those of this model")
        self.steps = int(state["_steps"])
        given = cut(state, self.mean)
        for name, mean in self.mean.items():
            local(mean).copy_(local(given[name]))
