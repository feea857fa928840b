"""What a teacher's tokens know of the world's attributes: a linear probe on frozen tokens. No
teacher learns from it.

n scenes, N cells, O = 3 objects
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes
from fulcrum.files.shipped import card
from fulcrum.networks.network_hash import to_unit
from fulcrum.networks.teacher import PATCH, Teacher
from tools.assets.pictures import ATTRIBUTES, DOMAINS, pictures

QUESTIONS = {
    "shape": len(v.SHAPES) + 1,
    "colour": len(v.COLOURS) + 1,
    "texture": len(v.TEXTURES) + 1,
    "size": len(v.SIZES) + 1,
}  # class 0: background
# asset -> how the page calls it
SHIPPED = {"teacher": "`world`, the default", "teacher_supervised": "`supervised`"}


def cells(scenes: Scenes, side: int) -> dict[str, Tensor]:
    """For each cell of the grid, what covers its centre (0 = background): name -> (n, N) int64."""
    count = side // PATCH
    middle = (torch.arange(count) + 0.5) / count
    y, x = (part.flatten() for part in torch.meshgrid(middle, middle, indexing="ij"))  # (N,)
    far = torch.hypot(
        torch.from_numpy(scenes.x)[..., None] - x, torch.from_numpy(scenes.y)[..., None] - y
    )
    reach = torch.from_numpy(scenes.radius)[..., None] + 0.35 / count  # (n, O, 1)
    far = torch.where(torch.from_numpy(scenes.place)[..., None] >= 0, far / reach, torch.inf)
    near, who = far.min(dim=1)  # (n, N)
    return {
        name: torch.where(near < 1, torch.from_numpy(getattr(scenes, name)).gather(1, who) + 1, 0)
        for name in ATTRIBUTES
    }


@torch.no_grad()
def measure_teacher(
    teacher: Teacher, count: int = 1000, split: str = "validation", start: int = 0
) -> dict[str, Any]:
    """Accuracy of a ridge probe on the frozen tokens: fitted on half of the scenes, read on the
    rest."""
    pool = pictures(split, max(count, 2), start=start)
    wanted = cells(pool.scenes, 32)
    half = pool.images.shape[1] // 2
    quality: dict[str, Any] = {"probe": "ridge on cells covered by an object"}
    for domain, images in zip(DOMAINS, pool.images, strict=True):
        # (n, N, E)
        tokens = torch.cat([teacher.tokens(to_unit(chunk)) for chunk in images.split(128)])
        tokens = F.pad(tokens, (0, 1), value=1.0).double()
        right = {}
        for name, classes in QUESTIONS.items():
            seen = wanted[name] > 0
            fit_on, read_on = seen.clone(), seen.clone()
            fit_on[half:], read_on[:half] = False, False
            one_hot = F.one_hot(wanted[name][fit_on], classes).double()
            a = tokens[fit_on]
            map_ = torch.linalg.solve(a.T @ a + torch.eye(a.shape[1], dtype=a.dtype), a.T @ one_hot)
            answers = (tokens[read_on] @ map_).argmax(-1)
            right[name] = round((answers == wanted[name][read_on]).double().mean().item(), 4)
        quality[domain] = right
    return quality


def row(says: str, domain: str, quality: dict[str, Any]) -> str:
    return (
        f"| {says} | {domain} | "
        + " | ".join(f"{quality[domain][name]:.2f}" for name in ATTRIBUTES)
        + " |"
    )


def table() -> str:
    """The probe of both shipped teachers, from their cards, and of a network that learned nothing:
    rows of Markdown.

    python -c "from tools.assets.teacher_probe import table; print(table())"
    """
    torch.manual_seed(0)
    qualities = {"a network that learned nothing": measure_teacher(Teacher().eval())}
    qualities |= {says: card(name)["quality"] for name, says in SHIPPED.items()}
    lines = [
        "| teacher | pictures | " + " | ".join(ATTRIBUTES) + " |",
        "|---|---|" + "---|" * len(ATTRIBUTES),
    ]
    lines += [
        row(says, domain, quality) for says, quality in qualities.items() for domain in DOMAINS
    ]
    return "\n".join(lines)
