"""A draw: every random number of one step, made outside the model.

B batch, C channels, h, w latent rows and columns, K kept tokens.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fulcrum.flow import keyed_noise
from fulcrum.flow.keyed_noise import HERE, DrawPlace


class Draw(NamedTuple):
    t: Tensor  # (B,)
    eps: Tensor  # (B, C, h, w)
    drop_text: Tensor  # (B,) bool
    keep: Tensor | None  # (B, K) or nothing is dropped
    extra: dict[str, Tensor]  # what other fillers declared
    drop_path: Tensor | None = None  # (B,) bool: the routed span counts for nothing


class Uniform(NamedTuple):
    """A declared need: n uniform numbers per image."""

    n: int = 1

    def make(self, seed: int, purpose: str, index: np.ndarray, place: DrawPlace = HERE) -> Tensor:
        return keyed_noise.uniform(seed, purpose, index, self.n, place)


class Subset(NamedTuple):
    """A declared need: `kept` of n positions per image."""

    n: int
    kept: int

    def make(self, seed: int, purpose: str, index: np.ndarray, place: DrawPlace = HERE) -> Tensor:
        return keyed_noise.subset(seed, purpose, index, self.n, self.kept, place)


class GroupedSubset(NamedTuple):
    """A declared need: `kept` of the four positions of every 2 x 2 group of a grid, per image."""

    rows: int
    columns: int
    kept: int

    def make(self, seed: int, purpose: str, index: np.ndarray, place: DrawPlace = HERE) -> Tensor:
        return keyed_noise.grouped_subset(seed, purpose, index, self.rows, self.columns, self.kept, place)


class Chance(NamedTuple):
    """A declared need: yes or no for each image, yes with probability p."""

    p: float

    def make(self, seed: int, purpose: str, index: np.ndarray, place: DrawPlace = HERE) -> Tensor:
        return keyed_noise.uniform(seed, purpose, index, place=place)[:, 0] < self.p


class Normal(NamedTuple):
    """A declared need: standard normal numbers per image, in a shape; none means that of the run's latent."""

    shape: tuple[int, ...] = ()

    def make(self, seed: int, purpose: str, index: np.ndarray, place: DrawPlace = HERE) -> Tensor:
        return keyed_noise.normal(seed, purpose, index, self.shape, place)


class Draws(NamedTuple):
    """How draws are made in one phase of a run."""

    seed: int
    time: Callable[[Tensor], Tensor]
    shape: tuple[int, int, int]  # of one latent
    drop_text: float
    noise_scale: float = 1.0
    needs: Mapping[str, Uniform | Subset | GroupedSubset | Chance | Normal] = {}

    def at(self, position: int, rows: int, place: DrawPlace = HERE, times: Tensor | None = None) -> Draw:
        """The draw of the images position … position + rows - 1, counted over the whole run and all processes.

        All of it is made at `place` but the `times`, which go through functions that devices round differently: they are
        made on the CPU, four bytes an image, and come along with the batch."""
        index = np.arange(position, position + rows)
        extra = {name: need.make(self.seed, name, index, place) for name, need in self.needs.items()}
        return Draw(
            t=(self.times(position, rows) if times is None else times).to(place.device),
            eps=keyed_noise.normal(self.seed, "eps", index, self.shape, place) * self.noise_scale,
            drop_text=keyed_noise.uniform(self.seed, "drop_text", index, place=place)[:, 0] < self.drop_text,
            keep=extra.pop("keep", None),
            drop_path=extra.pop("drop_path", None),
            extra=extra,
        )

    def times(self, position: int, rows: int) -> Tensor:
        """(B,) on the CPU."""
        return self.time(keyed_noise.uniform(self.seed, "t", np.arange(position, position + rows))[:, 0])
