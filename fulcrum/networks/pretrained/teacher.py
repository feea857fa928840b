"""A pretrained vision network as a teacher: patch tokens of its last layer, class and register
tokens left out.

B batch, S side of the pictures, N tokens (S / patch squared, row by row), E width

A token covers `patch` pixels of the picture: it is resized so that it does, such as 256 to 224 for
patches of 14.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fulcrum.files.sealed import read_json
from fulcrum.networks.network_hash import to_size
from fulcrum.networks.pretrained.config_facts import (
    TEACHER_PARTS,
    TeacherFacts,
    fitting_teacher,
    teacher_facts,
)
from fulcrum.networks.pretrained.folder import config_of, content_hash, licence_of, locate, read
from fulcrum.spec.errors import BadInput

PIXELS = 1 << 21  # of a pass: 41 pictures of 224 x 224
GRID = 4  # tokens on a side of the self-check's pictures
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


class PretrainedTeacher(nn.Module):
    """`tokens` of one of transformers' vision networks, frozen, in fp32."""

    def __init__(
        self,
        network: nn.Module,
        facts: TeacherFacts,
        patch: int,
        colours: tuple[Any, Any],
        more: dict[str, Any],
    ) -> None:
        super().__init__()
        self.network, self.facts, self.patch, self.width = network, facts, patch, facts.width
        self.config = {
            "network": facts.network,
            "patch": patch,
            "colours": [list(part) for part in colours],
            **more,
        }
        # Learned positions of another grid than this one are interpolated; DINOv2 does so unasked,
        # DINOv3 has none.
        self.options = (
            {"interpolate_pos_encoding": True} if facts.network == "CLIPVisionModel" else {}
        )
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.tensor(colours[0]).reshape(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor(colours[1]).reshape(1, 3, 1, 1))
        self.card: dict[str, Any] = {}
        self.notes: list[str] = []

    @torch.no_grad()
    def tokens(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, N, E)."""
        height, width = pixels.shape[-2:]
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"this teacher reads pictures with sides that are multiples of {self.patch}, found "
                f"{height} x {width}; resize the pictures, or give it another `patch`"
            )
        rows = max(1, PIXELS // (height * width // self.patch**2 * self.facts.patch**2))
        return torch.cat([self._tokens(part) for part in torch.split(pixels, rows)])

    def _tokens(self, pixels: Tensor) -> Tensor:
        height, width = (side // self.patch * self.facts.patch for side in pixels.shape[-2:])
        seen = to_size(pixels.to(self.mean.device), height, width)
        seen = ((seen + 1) / 2 - self.mean) / self.deviation
        states = self.network(pixel_values=seen, **self.options).last_hidden_state
        return states[:, self.facts.prefix :].to(pixels.device)  # type: ignore[no-any-return]


def load_teacher(path: str, width: int, patch: int) -> PretrainedTeacher:
    """The teacher in a folder, checked against what the run says of it."""
    folder = locate(path, TEACHER_PARTS)
    fitting_teacher(folder, width, patch)
    facts = teacher_facts(folder)
    named = (config_of(folder).get("architectures") or [facts.network])[0]
    network = read("transformers", facts.network, folder, half=named != facts.network)
    teacher = PretrainedTeacher(
        network, facts, patch, _colours(folder, facts), {"files": content_hash(folder)}
    )
    teacher.eval().requires_grad_(False)
    teacher.card = _card(teacher, folder)
    teacher.notes = [
        f"teacher {facts.network}: a token of width {width} per {patch} x {patch} pixels, "
        f"deviation {teacher.card['deviation']:.2f}"
    ]
    return teacher


def _colours(folder: Path, facts: TeacherFacts) -> tuple[Any, Any]:
    """Mean and deviation of the colours it was trained with: from its own preprocessor, else the
    family's."""
    usual = CLIP if facts.network == "CLIPVisionModel" else IMAGENET
    try:
        preprocessor = read_json(folder / "preprocessor_config.json", "")
        return tuple(preprocessor["image_mean"]), tuple(preprocessor["image_std"])
    except (BadInput, KeyError, TypeError):
        return usual


def _card(teacher: PretrainedTeacher, folder: Path) -> dict[str, Any]:
    """The facts that travel with it, and the self-check: shape, finite, other pictures give other
    tokens."""
    side = GRID * teacher.patch
    ramp = torch.linspace(-1, 1, side).expand(2, 3, side, side).clone()
    ramp[1] = ramp[1].flip(-1)
    seen = teacher.tokens(ramp)
    if (
        seen.shape != (2, GRID**2, teacher.width)
        or not bool(seen.isfinite().all())
        or torch.equal(seen[0], seen[1])
    ):
        raise BadInput(
            f"{folder}: two pictures gave tokens {tuple(seen.shape)}, expected finite and different"
            f" ones of shape {(2, GRID**2, teacher.width)}",
            "the folder is not what its config says",
        )
    return {
        "network": teacher.facts.network,
        "width": teacher.width,
        "patch": teacher.patch,
        "own_patch": teacher.facts.patch,
        "licence": licence_of(folder),
        "preprocessing": (
            f"antialiased resize by {teacher.facts.patch}/{teacher.patch}, "
            f"colours {teacher.config['colours']}"
        ),
        "normed": teacher.facts.network != "CLIPVisionModel",
        "deviation": round(float(seen.std()), 4),
    }
