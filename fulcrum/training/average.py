"""Averages of the weights, and the weights that pictures are drawn with."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fulcrum.spec.errors import BadInput
from fulcrum.training.dist.collectives import gathered, local, whole_on_all
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.dist.shard import cut
from fulcrum.training.model.adapter import is_beside, merged
from fulcrum.training.step import Step

# --------------------------------------------------------------------------------------------------
# Averages of the weights: none, or an exponential moving average in fp32.


class Average:
    """The weights that pictures are drawn with. Without an average they are the model's own."""

    def start(self, model: nn.Module) -> None:
        pass

    def update(self, model: nn.Module) -> None:
        pass

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in model.state_dict().items()}

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        if state:
            raise ValueError("this run keeps no average, but the checkpoint holds one")


class MovingAverage(Average):
    """m <- decay m + (1 - decay) w, every few steps; begins as the first weights it sees."""

    def __init__(self, decay: float, every: int) -> None:
        self.decay, self.every, self.steps = decay, every, 0
        self.mean: dict[str, Tensor] = {}

    def start(self, model: nn.Module) -> None:
        self.mean = {
            name: value.detach().float().clone() for name, value in model.state_dict().items()
        }

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.steps += 1
        if self.steps % self.every == 0:
            for name, value in model.state_dict().items():
                local(self.mean[name]).lerp_(local(value).float(), 1 - self.decay)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        return dict(self.mean)

    def state(self) -> dict[str, Tensor]:
        return {**self.mean, "_steps": torch.tensor(self.steps)}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        if set(state) != {*self.mean, "_steps"}:
            raise ValueError("the averaged weights of the checkpoint are not those of this model")
        if any(state[name].shape != mean.shape for name, mean in self.mean.items()):
            raise ValueError(
                "the averaged weights of the checkpoint have other shapes than those of this model"
            )
        self.steps = int(state["_steps"])
        given = cut(state, self.mean)
        for name, mean in self.mean.items():
            local(mean).copy_(local(given[name]))


# --------------------------------------------------------------------------------------------------
# What pictures are drawn with: the denoiser's weights, averaged if the run keeps an average, and a
# trained codec's last.
#
# The codec's are not averaged: its latents are what the denoiser saw last. Names of a codec's
# tensors begin with "codec.".


CODEC, DENOISER = "codec.", "backbone."


def drawn_weights(step: Step, average: Average, ranks: Ranks = ALONE) -> dict[str, Tensor]:
    """Of a run in memory, whole. Many processes must ask together: the first gets them, on the
    host, the others none."""
    return gathered(live_weights(step, average), ranks)


def shared_weights(step: Step, average: Average, ranks: Ranks = ALONE) -> dict[str, Tensor]:
    """The same for processes that draw together: each gets them."""
    return whole_on_all(live_weights(step, average), ranks)


def live_weights(step: Step, average: Average) -> dict[str, Tensor]:
    """As each process holds them."""
    weights: dict[str, Tensor] = dict(average.weights(step.backbone))
    codec = {} if step.codec is None else step.codec.state_dict()
    return weights | {CODEC + name: value.detach() for name, value in codec.items()}


def drawn_parts(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Of a checkpoint."""
    model, average = parts["model"], parts.get("average")
    if average:
        weights = {name: value for name, value in average.items() if not name.startswith("_")}
    else:
        weights = {
            name.removeprefix(DENOISER): value
            for name, value in model.items()
            if name.startswith(DENOISER)
        }
    return weights | {name: value for name, value in model.items() if name.startswith(CODEC)}


def codec_part(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(CODEC): value for name, value in weights.items() if name.startswith(CODEC)
    }


def fill(step: Step, weights: Mapping[str, Tensor], begins: bool = False) -> None:
    """Put drawn weights into a step; what the step has no adapters for is merged into the weights
    beside it.

    Where a run `begins` with them, a trained codec may keep what it has (the denoiser may come from
    a run whose codec was not trained), and adapters do; weights of a codec are never left over."""
    own = dict(step.backbone.state_dict())
    kept = {name: value for name, value in own.items() if is_beside(name)}
    if begins or not kept:
        weights = merged(weights)
    else:
        kept = {}
    codec, denoiser = (
        codec_part(weights),
        {n: v for n, v in weights.items() if not n.startswith(CODEC)},
    )
    expected = {name: value for name, value in own.items() if name not in kept}
    if step.codec is not None and (codec or not begins):
        expected |= {CODEC + name: value for name, value in step.codec.state_dict().items()}
    wrong = [
        name
        for name in expected.keys() | weights.keys()
        if name not in expected
        or name not in weights
        or expected[name].shape != weights[name].shape
    ]
    if wrong:
        raise BadInput(
            f"the weights do not fit this model: {len(wrong)} tensors differ, such as"
            f" '{sorted(wrong)[0]}'",
            "take those of a run with the same model and codec, or change the model's sizes",
        )
    step.backbone.load_state_dict(kept | cut(denoiser, own))
    if step.codec is not None and codec:
        step.codec.load_state_dict(codec)
