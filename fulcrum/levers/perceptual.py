"""Levers that compare the predicted picture with the true one in a frozen network."""

from typing import Any, Literal

from fulcrum.levers import published as price
from fulcrum.levers.alignment import or_supervised
from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.networks.fillers import WORLD_TEACHERS
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import LPIPS, VGGLPIPS, PerceptualFeatures

# --------------------------------------------------------------------------------------------------
# What the levers with a perceptual term share: a frozen network looks at the predicted and at the
# true picture.


class Perceiving(Swap):
    """A lever that adds a perceptual term of its own name; a subclass says which."""

    teacher: Literal["world", "supervised"] = "world"  # whose eyes it looks through

    settings = ("weight",)

    def made(self, **others: Any) -> Any:
        return super().made(asset=WORLD_TEACHERS[self.teacher], **others)

    def needs(self, run: RunSpec) -> str | None:
        problem: str | None = self.made().problem(run)
        return problem

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(self.made(), run, self.edit(run))

    def witness(self, built: Built) -> bool:
        """The built term sees a difference between prediction and truth."""
        if self.name not in built.weights(0):
            return False
        view = built.step.look(*built.feed.at(0, 2))
        return bool((built.step.terms[self.name](view) > 0).all())


# --------------------------------------------------------------------------------------------------
# LPIPS: the predicted and the true picture compared stage by stage inside a frozen network.
# arXiv:1801.03924


class UseLPIPS(Perceiving):
    #: that compares; vgg needs the package stlpips-pytorch
    network: Literal["teacher", "vgg"] = "teacher"

    name = "lpips"
    slot, filler = "terms.lpips", LPIPS
    card = Card(
        says=(
            "squared differences of unit-normalised features, early stages included: texture and"
            " edges count (used in PRX Part 3 with weight 0.1, never ablated alone)"
        ),
        train_only=True,
        warns=(
            "network=vgg is LPIPS itself, as PRX Part 3 has it: VGG16 with the weights that were"
            " learned for its channels (from a package, with blurred pooling; refused where it is"
            " not installed), and that network may then judge nothing of the study. By default it"
            " is only like it: the embedded alignment teacher, all channels weighed alike. No term"
            " looks through a metric's network or the judge, which would be training on the test."
            " At this size the network costs more than the denoiser; "
        )
        + or_supervised("the teacher"),
    )

    def made(self, **others: Any) -> Any:
        return VGGLPIPS(weight=self.weight) if self.network == "vgg" else super().made(**others)

    def needs(self, run: RunSpec) -> str | None:
        if self.network == "vgg" and self.teacher != "world":
            return f"with network=vgg no teacher looks: leave out teacher={self.teacher}"
        return super().needs(run)


# --------------------------------------------------------------------------------------------------
# Perceptual features: the predicted picture must look like the true one to a frozen vision network.


class UsePerceptualFeatures(Perceiving):
    name = "perceptual_features"
    slot, filler = "terms.perceptual_features", PerceptualFeatures
    card = Card(
        says=(
            "1 - cosine of a frozen network's patch tokens of the predicted and the true picture"
            " (used in PRX Part 3 with DINO, weight 0.01, never ablated alone)"
        ),
        train_only=True,
        warns=(
            "seen through the embedded alignment teacher, never through a metric's network or the"
            " judge: that would be training on the test. At this size the network costs more than"
            " the denoiser; "
        )
        + or_supervised("the teacher"),
    )
