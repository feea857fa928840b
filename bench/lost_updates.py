"""The dose of bf16 storage: the share of updates that round to nothing, at a recipe's own rate and
at the published one.

    python bench/lost_updates.py [--recipe spark] [--steps 200] [--cache FOLDER]

Two short trainings at a constant rate with weights stored in bf16, watched as every run is
(`stalled` in the record). Then the updates that Adam asked for there, in units of the rate, are put
on matrices that begin as the published model's do.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import Built, assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import train
from fulcrum.training.optim.optimizers import stalled_share

PUBLISHED_RATE, PUBLISHED_WIDTH = 1e-4, 1792


def asked_for(built: Built) -> Tensor:
    """Adam's next updates of the blocks' matrices, in units of the rate; modulations, which begin
    at zero, are left out."""
    rule, updates = built.optimizer, []
    for name, parameter in rule.parameters.items():
        if parameter.ndim == 2 and "blocks" in name and "modulation" not in name:
            count = float(rule.count[name])
            first, second = (
                rule.first[name] / (1 - rule.betas[0] ** count),
                rule.second[name] / (1 - rule.betas[1] ** count),
            )
            updates.append((first / (second.sqrt() + rule.eps)).flatten())
    every = torch.cat(updates)
    return every[every != 0]


def lost(updates: Tensor, rate: float, width: int) -> float:
    """Of weights that begin uniform within 1/sqrt(width)."""
    weights = ((torch.rand(len(updates)) * 2 - 1) / math.sqrt(width)).bfloat16().float()
    return float(((weights - rate * updates).bfloat16().float() == weights).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="spark")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--cache", type=Path, default=None)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    base = parse(given.recipe, CATALOG).run
    images = given.steps * base.budget.batch
    for rate in (base.optim.lr, PUBLISHED_RATE):
        settings = [f"optim.lr={rate}", "optim.decay=0", f"budget.images={images}"]
        run = parse(f"{given.recipe} + bf16_storage", CATALOG, settings).run
        shares = []

        def look(seen, shares=shares) -> None:
            if seen.built.optimizer.stalled is not None and seen.state.images > images / 4:
                shares.append(stalled_share(seen.built.optimizer.stalled))

        built = assemble(run, 0, System(), Feed(run, 0, given.cache or Path(tempfile.mkdtemp())))
        train(built, State(), [look], lambda: False)
        updates = asked_for(built)
        print(
            f"{given.recipe}, width {run.model.width}, rate {rate:g}:"
            f" {sum(shares) / len(shares):.2f} of the updates lost after the first quarter of"
            f" {given.steps} steps; the same updates at the published rate on matrices"
            f" {PUBLISHED_WIDTH} wide: {lost(updates, PUBLISHED_RATE, PUBLISHED_WIDTH):.2f}"
        )


if __name__ == "__main__":
    main()
