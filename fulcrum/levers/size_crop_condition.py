"""Size and crop conditioning: the denoiser is told what each picture was before it was cut.  arXiv:2307.01952, section 2.2

original height, original width, top, left -> 256 sinusoids each -> two linears -> added to the time's vector
"""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.condition_lever import Conditioning, hears
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases
from fulcrum.training.model.fillers import SizeCrop

WHOLE, CUT = (32.0, 32.0, 0.0, 0.0), (40.0, 40.0, 3.0, 5.0)


class SizeCropCondition(Conditioning):
    name = "size_crop_condition"
    filler = SizeCrop
    card = Card(
        says="each sample's original size and the corner of its crop enter the time vector, so that cut-off objects and "
        "enlarged pictures are learned as such and need not be drawn: at sampling a whole picture of the run's size, "
        "cropped at 0, 0, is asked for, as users of SDXL do (its paper shows a better FID with the size alone, on 512 px "
        "ImageNet: other data, another model, so it is no claim here)",
        warns="of SDXL's three pairs of numbers these are two; the third, the size that is drawn, says nothing in a run of "
        "one size. Corners are in pixels of the picture as it is trained on, original sizes in the pixels that were given. "
        "An import crops the centre, and its record of every picture says from what; the embedded world is whole unless "
        "data.source.crop says otherwise, and is judged whole. The model cannot be exported to diffusers",
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
