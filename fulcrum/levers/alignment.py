"""Levers of alignment with a vision teacher: REPA, iREPA, and the choice of DINOv2 or DINOv3."""

from typing import ClassVar, Literal

from fulcrum.levers import published as price
from fulcrum.levers.base import ANY, Built, Card, Cost, Swap
from fulcrum.levers.folder_lever import TeacherFromFolder
from fulcrum.levers.published import LATENTS, claim
from fulcrum.networks.fillers import WORLD_TEACHERS, WorldTeacher
from fulcrum.spec.edit import put
from fulcrum.spec.record import Factor, Fraction, Share
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import Alignment

# --------------------------------------------------------------------------------------------------
# The caution of levers that learn from an embedded teacher: what it was told, and what its
# supervised sibling was.


def told_nothing(network: str) -> str:
    """For the end of a card's warning; `network` is what the lever learns from, as the beginning of
    a clause."""
    return (
        f"{network} was told no attribute and no caption of the world: it learned to see on"
        " outlines and patterns that the world does not have, and by repainting the world's"
        " pictures (docs/teachers.md has a probe of what it knows)"
    )


def or_supervised(network: str) -> str:
    """The same, for levers with the setting `teacher`."""
    return (
        told_nothing(network)
        + "; teacher=supervised learned shapes, colours, textures and sizes from the same labels of"
        " the same world as both judges and the features of the distances: part of what that one"
        " passes on is what they look for, and no embedded metric can tell that part from better"
        " pictures"
    )


# --------------------------------------------------------------------------------------------------
# Which embedded teacher a lever learns from: the default, which was told nothing of the world, or
# the supervised one.


def with_teacher(run: RunSpec, name: str) -> RunSpec:
    """The run with the embedded teacher of this name; any other name is that of a teacher which the
    run must have."""
    if name not in WORLD_TEACHERS or any(teacher.name == name for teacher in run.encode.teachers):
        return run
    teacher = WorldTeacher.model_validate({"name": name, "asset": WORLD_TEACHERS[name]})
    return put(run, f"encode.teachers.{name}", teacher)


# --------------------------------------------------------------------------------------------------
# What REPA and iREPA share: settings, the edit that brings term and teacher, needs and cost. They
# differ in the term.


class Aligning(Swap):
    """A lever that adds the term `alignment`; a subclass says which one, and sees it in what was
    built."""

    until: Fraction | None = None  # share of the budget after which it is off; none = never

    slot, filler = "terms.alignment", Alignment
    settings: ClassVar[tuple[str, ...]] = ("teacher", "layer", "weight", "schedule")
    touches = ("terms.alignment", "encode.teachers")
    projector: ClassVar[Literal["mlp", "conv"]] = "mlp"
    normalise: ClassVar[bool] = False  # the teacher's tokens, over space

    def term(self) -> Alignment:
        made: Alignment = self.made(
            projector=self.projector, normalise=self.normalise, until=self.until or 1.0
        )
        return made

    def edit(self, run: RunSpec) -> RunSpec:
        return with_teacher(put(run, self.slot, self.term()), self.teacher)

    def needs(self, run: RunSpec) -> str | None:
        return self.term().problem(run)

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(self.term(), run, self.edit(run))

    def witness(self, built: Built) -> bool:
        """The built term has this projector and normalisation, and the teacher's tokens are on the
        model's grid."""
        if "alignment" not in built.weights(0):
            return False
        batch, draw = built.feed.at(0)
        term, tokens = built.step.terms["alignment"], batch.teacher[self.teacher].shape[1]
        convolves = any(parameter.ndim == 4 for parameter in term.parameters())
        asked = (self.normalise, self.term().alpha, self.projector == "conv")
        return (term.normalise, term.alpha, convolves) == asked and bool(
            tokens == draw.eps[0, 0].numel() // built.run.model.patch**2
        )


# --------------------------------------------------------------------------------------------------
# DINOv2 as the teacher of whatever term of the loss aligns: a network that saw far more than any
# training set.


SCOPE = f"{LATENTS}, DINOv2 teacher"
FOLDER = {"path": ANY}


class DinoV2(TeacherFromFolder):
    name = "dinov2"
    touches = ("encode.teachers.dinov2",)
    network = "Dinov2Model"
    also = ("Dinov2WithRegistersModel",)
    card = Card(
        says=(
            "DINOv2 teaches in the place of the run's own teacher, with registers or without"
            " (arXiv:2304.07193); takes its folder, and only describes the run, as a ViT-B,"
            " without one"
        ),
        claims=(
            claim("fid", -1.60, SCOPE, also="REPA", settings=FOLDER),
            claim("cmmd", -0.02, SCOPE, also="REPA", settings=FOLDER),
            claim("dino_mmd", -0.08, SCOPE, also="REPA", settings=FOLDER),
        ),
        train_only=True,
        warns=(
            "needs a term that reads the teacher whose place it takes; a DINO-MMD looks through a"
            " sibling of this teacher: it is no fair judge of what it taught; the published numbers"
            " are of alignment with it against none"
        ),
    )


# --------------------------------------------------------------------------------------------------
# DINOv3 as the teacher of whatever term of the loss aligns: a network that saw far more than any
# training set.


DINOV3_SCOPE = f"{LATENTS}, DINOv3 teacher"
DINOV3_FOLDER = {"path": ANY}


class DinoV3(TeacherFromFolder):
    name = "dinov3"
    touches = ("encode.teachers.dinov3",)
    network = "DINOv3ViTModel"
    card = Card(
        says=(
            "DINOv3 teaches in the place of the run's own teacher (arXiv:2508.10104); takes its"
            " folder, and only describes the run, as a ViT-B, without one"
        ),
        claims=(
            claim("fid", -3.56, DINOV3_SCOPE, also="REPA", settings=DINOV3_FOLDER),
            claim("cmmd", -0.06, DINOV3_SCOPE, also="REPA", settings=DINOV3_FOLDER),
            claim("dino_mmd", -0.09, DINOV3_SCOPE, also="REPA", settings=DINOV3_FOLDER),
        ),
        train_only=True,
        warns=(
            "needs a term that reads the teacher whose place it takes; a DINO-MMD looks through a"
            " sibling of this teacher: it is no fair judge of what it taught; the published numbers"
            " are of alignment with it against none"
        ),
    )


# --------------------------------------------------------------------------------------------------
# iREPA: alignment that cares for the layout: a convolution as projector, teacher tokens normalised
# over space.
#
# block 0 ──► … ──► middle block ──► … ──► out
#                       └──► 3 x 3 convolution ──► 1 - cosine with (y - alpha · mean) / std,
#                                                  mean and std over tokens
#
# arXiv:2512.10794


class IRepa(Aligning):
    alpha: Share = 0.6  # share of the teacher's mean over tokens that is taken away
    weight: Factor = 1.0

    name = "irepa"
    settings = (*Aligning.settings, "alpha")
    projector = "conv"
    normalise = True
    card = Card(
        says=(
            "alignment to the teacher's spatial layout rather than to what its tokens share. Its"
            " authors run alpha 0.6 with weight 1.0 in latents, the defaults, and alpha 0.8 with"
            " weight 0.5 in pixels: irepa(alpha=0.8, weight=0.5)"
        ),
        train_only=True,
        warns=(
            "PRX Part 2 says without numbers that iREPA helped with DINOv2 and made DINOv3 worse."
            " That was not this: its code takes from each token the mean over its own features,"
            " about zero after a LayerNorm, instead of the mean over tokens, and projects by"
            " attention instead of a convolution (fault A21 of docs/published.md), so it is no"
            " claim here. The convolution sees the whole grid even where the layer is routed:"
            " tokens that are not there are zero; "
        )
        + or_supervised("the teacher"),
    )


# --------------------------------------------------------------------------------------------------
# REPA: a middle layer learns to speak as a frozen vision teacher does.  arXiv:2410.06940
#
# block 0 ──► … ──► middle block ──► … ──► out
#                       └──► 3-layer MLP ──► 1 - cosine with the teacher's token at the same place


DINO3, DINO2 = f"{LATENTS}, DINOv3 teacher", f"{LATENTS}, DINOv2 teacher"
TEACHER = {"teacher": ANY}  # ours stands in for the published ones


class Repa(Aligning):
    name = "repa"
    card = Card(
        says=(
            "a middle layer is drawn towards a frozen teacher's features; pays early; the articles"
            " end it (until=)"
        ),
        claims=(
            claim("fid", -3.56, DINO3, settings=TEACHER),
            claim("cmmd", -0.06, DINO3, settings=TEACHER),
            claim("fid", -1.60, DINO2, settings=TEACHER),
            claim("cmmd", -0.02, DINO2, settings=TEACHER),
        ),
        train_only=True,
        warns=(
            "the published teachers saw far more than the training set; the embedded one is small,"
            " and its features are cached, where the published arms computed theirs in every step"
            " (12 % and 7 % slower); "
        )
        + or_supervised("the teacher"),
    )
