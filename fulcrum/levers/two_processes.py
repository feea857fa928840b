"""The law of the world: one process equals two. One group of processes tries all levers, one after
the other.

    python -m fulcrum.levers.two_processes FOLDER      one rank; started twice by `verdicts`

The parent computes every case alone and writes it down; the two ranks compute it together, and the
first compares.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fulcrum.levers.catalog import with_files
from fulcrum.levers.laws import assembled, ground_of, tried
from fulcrum.spec.edit import put_all
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.keyed import key
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import RunSpec
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import local, whole
from fulcrum.training.dist.ranks import ALONE, Ranks, start
from fulcrum.training.dist.shard import cut
from fulcrum.training.feed import Feed
from fulcrum.training.flow.noise import normals
from fulcrum.training.loop import after, gradients, train

ROWS, STEPS = 16, 3
AWAKE = 0.02  # deviation of weights that would begin at zero
GRADIENT_WITHIN = 1e-5  # relative to the norm of all gradients, fp32
# Where something computes in bf16, a difference of the last bit of fp32 moves some results by a
# whole step of bf16, and each process rounds the gradient of its own rows.
BF16_GRADIENT_WITHIN = 1e-2
# Relative to the norm of the change after three steps. Adam divides by the gradient's own size, so
# that elements whose gradient is nearly nothing move as far as the others, in a direction that the
# last bits decide.
CHANGE_WITHIN = 5e-3
# A weight that is rounded after each step may round the other way on a difference of the last bit:
# half a unit or more.
ROUNDED_CHANGE_WITHIN = 0.1
# Gradients a hundredth apart decide the direction of more such elements (0.16 seen); unrelated
# changes are 1.4 apart.
BF16_CHANGE_WITHIN = 0.3


def verdicts(
    names: list[str], catalogue: Catalogue, folder: Path, files: tuple[Path, ...] = ()
) -> dict[str, str]:
    """Lever name -> what is broken, or an empty word."""
    for name in names:
        save_file(
            _trained(_case(name, catalogue, folder), folder, ALONE), folder / f"{name}.safetensors"
        )
    (folder / "asked.json").write_text(
        json.dumps({"names": names, "files": [str(path) for path in files]})
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(2):
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "fulcrum.levers.two_processes", str(folder)],
                env=env,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    errors = [child.communicate()[1] for child in children]
    if any(child.returncode for child in children):
        raise RunFailed(
            "the two processes of the world law failed", "\n".join(text[-1500:] for text in errors)
        )
    broken: dict[str, str] = json.loads((folder / "broken.json").read_text())
    return broken


def _case(name: str, catalogue: Catalogue, folder: Path) -> RunSpec:
    lever = tried(catalogue.levers[name], folder)
    run: RunSpec = lever.edit(ground_of(lever, catalogue).run)
    return put_all(run, [("budget.batch", ROWS), ("budget.images", 6 * ROWS)])


def _trained(run: RunSpec, folder: Path, ranks: Ranks) -> dict[str, Tensor]:
    """Gradients of the first step and weights before the first and after the last, whole on every
    rank."""
    built = assembled(run, Feed(run, 0, folder / "cache"), ranks=ranks)
    _awaken(built)
    tensors = {f"before/{name}": value for name, value in _weights(built).items()}
    gradients(built, 0)
    tensors |= {
        f"gradient/{name}": whole(parameter.grad).detach().clone()
        for name, parameter in built.step.named_parameters()
        if parameter.grad is not None
    }
    built.optimizer.zero_grad()
    train(built, State(), [], after(STEPS))
    return tensors | {f"after/{name}": value for name, value in _weights(built).items()}


@torch.no_grad()
def _awaken(built: Built) -> None:
    """Give weights that begin at zero small values, the same on any number of processes.

    A head of zeros hides the rest of the model from flow matching in the first step. A bias that no
    other term sees then has a gradient of pure rounding, which Adam would follow at full length.
    """
    parameters = dict(built.step.named_parameters())
    wholes = {name: whole(parameter) for name, parameter in parameters.items()}
    drawn = {
        name: torch.from_numpy(normals(key(0, "awaken", name), value.numel())).view(value.shape)
        for name, value in wholes.items()
        if not value.any()
    }
    for name, value in cut(drawn, {name: parameters[name] for name in drawn}).items():
        local(parameters[name]).copy_(AWAKE * local(value))
    built.optimizer.store.start(dict(built.step.backbone.named_parameters()))
    built.average.start(built.step.backbone)


def _weights(built: Built) -> dict[str, Tensor]:
    return {
        name: whole(parameter).detach().clone().contiguous()
        for name, parameter in built.step.named_parameters()
    }


def _apart(one: dict[str, Tensor], two: dict[str, Tensor], prefix: str) -> float:
    """Norm of the difference of all tensors with this prefix."""
    names = [name for name in one if name.startswith(prefix)]
    if names != [name for name in two if name.startswith(prefix)]:
        return float("inf")
    norms = [(one[name].double() - two[name].double()).norm() for name in names]
    return float(torch.stack(norms).norm())


def _compare(alone: dict[str, Tensor], together: dict[str, Tensor], run: RunSpec) -> str:
    norms = [value.double().norm() for name, value in alone.items() if name.startswith("gradient/")]
    size = float(torch.stack(norms).norm())
    gradient = _apart(alone, together, "gradient/") / size
    moved = {
        name.replace("after/", "before/"): value
        for name, value in alone.items()
        if name.startswith("after/")
    }
    change = _apart(alone, together, "after/") / _apart(moved, alone, "before/")
    precision = run.precision
    computed = {
        getattr(precision, slot) for slot in ("compute", "norm", "softmax", "rope", "time", "loss")
    } == {"fp32"}
    gradient_within = GRADIENT_WITHIN if computed else BF16_GRADIENT_WITHIN
    exact = computed and precision.storage == precision.gradient == precision.optimizer == "fp32"
    rounded = ROUNDED_CHANGE_WITHIN if computed else BF16_CHANGE_WITHIN
    within = CHANGE_WITHIN if exact else rounded
    problems = []
    if _apart(alone, together, "before/"):
        problems.append("the weights begin differently")
    if not gradient <= gradient_within:
        problems.append(f"gradients are {gradient:.1e} apart, allowed {gradient_within:.0e}")
    if not change <= within:
        problems.append(f"changes of the weights are {change:.1e} apart, allowed {within:.0e}")
    return "; ".join(problems)


def _rank(folder: Path) -> None:
    torch.set_num_threads(1)
    asked: dict[str, Any] = json.loads((folder / "asked.json").read_text())
    catalogue, _ = with_files(Path(path) for path in asked["files"])
    broken = {}
    with start(timeout=120.0) as ranks:
        for name in asked["names"]:
            run = _case(name, catalogue, folder)
            together = _trained(run, folder, ranks)
            alone = load_file(folder / f"{name}.safetensors")
            broken[name] = _compare(
                alone, {key: together[key] for key in alone if key in together}, run
            )
    if ranks.first:
        (folder / "broken.json").write_text(json.dumps(broken))


if __name__ == "__main__":
    _rank(Path(sys.argv[1]))
