"""Records of the terms that look at the predicted picture through a frozen network."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fulcrum.spec import slots as seam
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images, phases

if TYPE_CHECKING:
    from fulcrum.loss.term import Term

PATCH = 4  # px per token of the embedded teacher, as in encode.teacher
SAVED = 105  # numbers per pixel that its backward reads, as counted
VGG_PACKAGE = "stlpips-pytorch"
VGG_LEAST = 18  # px of a side: below it nothing is left to blur before the last stage


class PictureTerm(seam.TermFiller):
    """What terms share that look at the predicted picture through a frozen network."""

    weight: Factor

    def problem(self, run: RunSpec) -> str | None:
        """What keeps the term from working in this run, in words, or None."""
        codec = run.encode.codec
        if codec.stride != 1 or codec.channels != 3:
            return (
                f"it looks at pictures, but the denoiser sees {codec.channels} channels, stride {codec.stride}; "
                "it needs pixels, 3 channels at a stride of 1: add pixels + x_prediction"
            )
        if run.flow.predict.kind != "x":
            return (
                f"it looks at the predicted clean picture, and the network predicts '{run.flow.predict.kind}' "
                f"(flow.predict=x predicts the picture)"
            )
        return next(filter(None, (self.misfit(phase.run.data.size) for phase in phases(run))), None)

    def misfit(self, size: int) -> str | None:
        """Why its network cannot look at pictures of this size, in words, or None."""
        return None

    def flops(self, run: RunSpec) -> float:
        """Of one image, on average over the budget: the network on both pictures, and back to the predicted one."""
        return mean_over_images(run, lambda phase: 3 * self.forward_flops(phase.data.size) if self in phase.terms else 0)

    def forward_flops(self, size: int) -> float:
        """Convolutions of the network on one picture, up to where the term reads it."""
        raise BadInput(f"{type(self).__name__} does not say what it costs", "define forward_flops(size)")

    def parameters(self, run: RunSpec) -> int:
        return 0  # its network is frozen

    def saved(self, size: int) -> float:
        """Numbers that the backward of one picture of this size reads."""
        raise BadInput(f"{type(self).__name__} does not say what it keeps", "define saved(size)")

    def numbers(self, run: RunSpec) -> float:
        """That the backward of one image reads."""
        return max(self.saved(phase.run.data.size) for phase in phases(run) if self in phase.run.terms)


class Perceptual(PictureTerm):
    """What the terms share that look through an embedded teacher."""

    world_only: ClassVar[bool] = True
    asset: Literal["teacher", "teacher_supervised"] = "teacher"  # an alignment teacher; never a metric's network

    def hashes(self) -> dict[str, str]:
        from fulcrum.files.shipped import asset_hash

        return {f"asset:{self.asset}": asset_hash(self.asset)}

    def network(self) -> Any:
        from fulcrum.networks.teacher import load_teacher

        return load_teacher(self.asset)

    def misfit(self, size: int) -> str | None:
        return f"its network needs sides that are multiples of {PATCH} px, found {size} px" if size % PATCH else None

    def saved(self, size: int) -> float:
        return SAVED * size**2

    def forward_flops(self, size: int) -> float:
        from fulcrum.files.shipped import card

        config = card(self.asset)["config"]
        fine, coarse = int(config["fine"]), int(config["coarse"])
        halves, quarters = (size // 2) ** 2, (size // PATCH) ** 2
        wide = len(config["dilations"]) * 2 * 9 * coarse**2
        return 2.0 * (halves * 9 * 12 * fine + quarters * (4 * fine * coarse + wide))


class PerceptualFeatures(Perceptual):
    """1 - cosine of patch tokens of the predicted and the true picture."""

    kind = "perceptual_features"
    name: str = "perceptual_features"
    weight: Factor = 0.01

    def forward_flops(self, size: int) -> float:
        from fulcrum.files.shipped import card

        config = card(self.asset)["config"]
        return super().forward_flops(size) + 2.0 * (size // PATCH) ** 2 * int(config["coarse"]) * int(config["width"])

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.perceptual import FeatureTerm

        return FeatureTerm(self.network(), ctx.system.device)


class LPIPS(Perceptual):
    """Squared differences of unit-normalised features of the network's stages."""

    kind = "lpips"
    name: str = "lpips"
    weight: Factor = 0.1

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.perceptual import StageTerm

        return StageTerm(self.network(), ctx.system.device)


class VGGLPIPS(PictureTerm):
    """LPIPS through VGG16 and its learned weights, from the package stlpips-pytorch (blurred pooling: arXiv:2207.13686)."""

    kind = "vgg_lpips"
    name: str = "lpips"
    weight: Factor = 0.1

    def hashes(self) -> dict[str, str]:
        from fulcrum.networks.pretrained.folder import PACKAGES

        return {f"package:{VGG_PACKAGE}/{path}": sha for path, sha in PACKAGES[VGG_PACKAGE].files.items()}

    def problem(self, run: RunSpec) -> str | None:
        from fulcrum.networks.pretrained.folder import installed

        if problem := super().problem(run):
            return problem
        installed(VGG_PACKAGE)  # refused here, and never replaced by another network
        return None

    def misfit(self, size: int) -> str | None:
        return f"VGG needs sides of at least {VGG_LEAST} px, found {size} px" if size < VGG_LEAST else None

    def forward_flops(self, size: int) -> float:
        from fulcrum.networks.pretrained.vision import convolutions

        return 2.0 * sum(side**2 * 9 * inputs * outputs for side, inputs, outputs in convolutions(size))

    def saved(self, size: int) -> float:
        from fulcrum.networks.pretrained.vision import convolutions

        total, before, channels = 0.0, size, 3
        for side, inputs, outputs in convolutions(size):
            if inputs == 1:  # the stage's difference; then of a blur: where the largest stood, those, and mirrored edges
                total += outputs * (before**2 + 3 * (before - 1) ** 2 + (before + 3) ** 2)
            total += outputs * side**2
            before, channels = side, outputs
        return total + channels * before**2

    def build(self, ctx: Any) -> "Term":
        from fulcrum.loss.perceptual import VGGTerm
        from fulcrum.networks.pretrained.vision import load_vgg

        return VGGTerm(load_vgg(), ctx.system.device)
