"""Levers of the model: bottleneck, conditions, LoRA and partial fine-tuning."""

from typing import Any

from fulcrum.data.fillers import World
from fulcrum.levers import published as price
from fulcrum.levers.base import Built, Card, Cost, Lever, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.record import Width
from fulcrum.spec.run import AllWeights, RunSpec
from fulcrum.spec.stage import phases
from fulcrum.training.model.fillers import ChosenWeights, LowRank, NoCondition, Resolution, SizeCrop

# --------------------------------------------------------------------------------------------------
# What the levers that tell the denoiser something beside the time share: the cost, and that another
# thing told is seen.


class Conditioning(Swap):
    """A lever that fills `model.condition`; a subclass says with what, and finds it in what was
    built."""

    slot = "model.condition"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, self.slot, NoCondition()), self.edit(run))


def hears(embedder: Any, one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Does the built part make another vector of other numbers?"""
    import torch

    from fulcrum.training.dist.collectives import whole

    # many processes hold slices
    weights = {name: whole(value) for name, value in embedder.named_parameters()}
    numbers = torch.tensor([one, other], device=next(iter(weights.values())).device)
    with torch.no_grad():
        first, second = torch.func.functional_call(embedder, weights, (None, None, numbers))
    return not bool(torch.equal(first, second))


# --------------------------------------------------------------------------------------------------
# What levers that let only a part of the weights learn share: the slot, the cost, and what a
# witness looks at.


class PartialLearning(Swap):
    """A lever that fills `model.learned`."""

    slot = "model.learned"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, self.slot, AllWeights()), self.edit(run))


def moving(built: Built) -> set[str]:
    """Names of the denoiser's parameters that get a gradient; empty where the optimizer has others,
    or not all of them."""
    own = dict(built.step.backbone.named_parameters(prefix="backbone"))
    with_gradient = {name for name, weight in own.items() if weight.requires_grad}
    updated = {name.partition("/")[2] for name in built.optimizer.state()} & own.keys()
    return with_gradient if updated == with_gradient else set()


# --------------------------------------------------------------------------------------------------
# Bottleneck: patches enter through two linears with a narrow waist instead of one.
# arXiv:2511.13720
#
# The waist is a seventh of the model: 256 of 1792 in the published pixel model, 128 of 768 in
# JiT-B.


class Bottleneck(Lever):
    width: Width | None = None  # of the waist; none = a seventh of the model's, in eights

    name = "bottleneck"
    touches = ("model.bottleneck",)
    card = Card(
        says=(
            "wide patches are squeezed before they reach the stream; pays for pixels, where most of"
            " a patch is redundant (JiT, class-conditional ImageNet in pixels, patches of 768 to"
            " 3,072 numbers; part of the published pixel models, never ablated alone there)"
        ),
        warns=(
            "a patch of latents has few numbers, and a waist narrower than that loses some of them"
            " for good"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "model.bottleneck", self._waist(run))

    def needs(self, run: RunSpec) -> str | None:
        features = run.encode.codec.channels * run.model.patch**2
        if self._waist(run) < features:
            return None
        return (
            f"a patch has {features} features, so a waist of {self._waist(run)} squeezes nothing: "
            "give a smaller width, or wider patches"
        )

    def idle(self, run: RunSpec) -> str:
        if run.encode.codec.stride == 1:
            return ""
        return (
            "the denoiser sees latents, of which little is redundant: it is for patches of pixels"
        )

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, "model.bottleneck", None), self.edit(run))

    def witness(self, built: Built) -> bool:
        shapes = [
            tuple(weight.shape)
            for name, weight in built.step.backbone.img_in.named_parameters()
            if "weight" in name
        ]
        waist, width = self._waist(built.run), built.run.model.width
        return len(shapes) == 2 and shapes[0][0] == waist and shapes[1] == (width, waist)

    def _waist(self, run: RunSpec) -> int:
        return self.width or max(8, 8 * round(run.model.width / 7 / 8))


# --------------------------------------------------------------------------------------------------
# LoRA: the weights stay as they began, and small products learn beside the chosen layers.
# arXiv:2106.09685
#
# x ──► W (frozen) ──────────────────┬──► y
#  └──► down (r x D) ──► up (E x r) ─┘ times alpha / r


class Lora(PartialLearning):
    name = "lora"
    filler = LowRank
    card = Card(
        says=(
            "fine-tuning by a file of a few kilobytes to megabytes: beside each chosen layer a"
            " product of rank r learns, all else stays. A third of a step's FLOPs, the gradients of"
            " the weights, and their optimizer state are saved"
        ),
        train_only=True,
        warns=(
            "needs trained weights to begin from (--start RUN or the folder of a pipeline): beside"
            " random ones it learns next to nothing, so that is refused. Pictures are drawn with"
            " the products merged into the weights; fulcrum export --adapter writes them alone. Its"
            " learning rate is its own: the recipe's was chosen for all weights"
        ),
    )

    def in_run(self, run: RunSpec) -> str:
        from fulcrum.spec.flops import own_parameters, parameters

        learned, own = parameters(run) - own_parameters(run), own_parameters(run)
        return f"{learned:,} parameters learn beside {own:,} that do not ({learned / own:.1%})"

    def witness(self, built: Built) -> bool:
        """Only products beside layers get gradients and updates, and the first layer's is of the
        rank."""
        from fulcrum.training.model.adapter import is_beside

        names, weights = (
            moving(built),
            dict(built.step.backbone.named_parameters(prefix="backbone")),
        )
        ranks = {weights[name].shape[0] for name in names if name.endswith(".down")}
        return bool(names) and all(map(is_beside, names)) and ranks == {self.rank}


# --------------------------------------------------------------------------------------------------
# Resolution conditioning: the denoiser is told how large the picture is that it draws.
#
# sinusoids of height and width -> two linears -> added to the time's vector


class ResolutionCondition(Conditioning):
    name = "resolution_condition"
    filler = Resolution
    card = Card(
        says=(
            "height and width of what is drawn enter the time vector, as PRX's released model can"
            " have it; says nothing in a run of one size, and can only pay in one that sees several"
        ),
        warns=(
            "nothing of what a picture was before it was cut and resized: that is another thing to"
            " be told"
        ),
    )

    def idle(self, run: RunSpec) -> str:
        sizes = {phase.run.data.size for phase in phases(run)}
        # an imported folder may have several shapes
        if len(sizes) > 1 or not isinstance(run.data.source, World):
            return ""
        return "every picture of this run has one size, so it would be told nothing"

    def witness(self, built: Built) -> bool:
        embedder = built.step.backbone.resolution_embedder
        return embedder is not None and hears(embedder, (8.0, 8.0), (16.0, 8.0))


# --------------------------------------------------------------------------------------------------
# Size and crop conditioning: the denoiser is told what each picture was before it was cut.
# arXiv:2307.01952, section 2.2
#
# original height, original width, top, left -> 256 sinusoids each -> two linears -> added to the
# time's vector


WHOLE, CUT = (32.0, 32.0, 0.0, 0.0), (40.0, 40.0, 3.0, 5.0)


class SizeCropCondition(Conditioning):
    name = "size_crop_condition"
    filler = SizeCrop
    card = Card(
        says=(
            "each sample's original size and the corner of its crop enter the time vector, so that"
            " cut-off objects and enlarged pictures are learned as such and need not be drawn: at"
            " sampling a whole picture of the run's size, cropped at 0, 0, is asked for, as users"
            " of SDXL do (its paper shows a better FID with the size alone, on 512 px ImageNet:"
            " other data, another model, so it is no claim here)"
        ),
        warns=(
            "of SDXL's three pairs of numbers these are two; the third, the size that is drawn,"
            " says nothing in a run of one size. Corners are in pixels of the picture as it is"
            " trained on, original sizes in the pixels that were given. An import crops the centre,"
            " and its record of every picture says from what; the embedded world is whole unless"
            " data.source.crop says otherwise, and is judged whole. The model cannot be exported to"
            " diffusers"
        ),
    )

    def needs(self, run: RunSpec) -> str | None:
        sources = [phase.run.data.source for phase in phases(run)]
        if missing := next((why for source in sources if (why := source.geometry_missing())), None):
            return missing
        if not any(source.geometry_varies() for source in sources):
            return (
                "no picture was cropped or resized, so there is nothing to tell the model "
                "(the embedded world is cropped with --set data.source.crop=0.25)"
            )
        return None

    def witness(self, built: Built) -> bool:
        """The batch brings the numbers, and the denoiser makes another vector of others."""
        embedder, batch = built.step.backbone.own_condition, built.feed.at(0)[0]
        return batch.geometry is not None and embedder is not None and hears(embedder, WHOLE, CUT)


# --------------------------------------------------------------------------------------------------
# Partial fine-tuning: only the weights of the chosen roles learn, all others stay as they began.


class TrainOnly(PartialLearning):
    name = "train_only"
    filler = ChosenWeights
    card = Card(
        says=(
            "fine-tuning of some weights, chosen by role (matrix, embed, head, vector) or by what a"
            " layer of a block is for (attention_in, attention_out, text, feed_forward,"
            " modulation), in all blocks or from one to another; nothing is added. The other"
            " weights' gradients and optimizer state are saved"
        ),
        train_only=True,
        warns=(
            "needs trained weights to begin from (--start RUN or the folder of a pipeline), or it"
            " is refused; its learning rate is its own"
        ),
    )

    def witness(self, built: Built) -> bool:
        """What gets gradients and updates is what the roles name in the built model, and less than
        all."""
        from fulcrum.training.model.parameters import words

        backbone = built.step.backbone
        blocks = {
            id(weight): number
            for number, block in enumerate(backbone.blocks)
            for weight in block.parameters()
        }
        known, learned = words(backbone), self.made()
        weights = dict(backbone.named_parameters())
        chosen = {
            name
            for name in weights
            if learned.learns(known[name], blocks.get(id(weights[name])), backbone.depth)
        }
        return (
            bool(chosen)
            and len(chosen) < len(weights)
            and moving(built) == {f"backbone.{name}" for name in chosen}
        )
