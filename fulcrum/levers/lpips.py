"""LPIPS: the predicted and the true picture compared stage by stage inside a frozen network.  arXiv:1801.03924"""

from typing import Any, Literal

from fulcrum.levers.base import Card
from fulcrum.levers.shared.perceptual_lever import Perceiving
from fulcrum.levers.shared.teacher_caution import or_supervised
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import LPIPS, VGGLPIPS


class UseLPIPS(Perceiving):
    network: Literal["teacher", "vgg"] = "teacher"  # that compares; vgg needs the package stlpips-pytorch

    name = "lpips"
    slot, filler = "terms.lpips", LPIPS
    card = Card(
        says="squared differences of unit-normalised features, early stages included: texture and edges count (used in PRX "
        "Part 3 with weight 0.1, never ablated alone)",
        train_only=True,
        warns="network=vgg is LPIPS itself, as PRX Part 3 has it: VGG16 with the weights that were learned for its channels"
        " (from a package, with blurred pooling; refused where it is not installed), and that network may then judge "
        "nothing of the study. By default it is only like it: the embedded alignment teacher, all channels weighed alike. "
        "No term looks through a metric's network or the judge, which would be training on the test. At this size the "
        "network costs more than the denoiser; " + or_supervised("the teacher"),
    )

    def made(self, **others: Any) -> Any:
        return VGGLPIPS(weight=self.weight) if self.network == "vgg" else super().made(**others)

    def needs(self, run: RunSpec) -> str | None:
        if self.network == "vgg" and self.teacher != "world":
            return f"with network=vgg no teacher looks: leave out teacher={self.teacher}"
        return super().needs(run)
