"""Pixels: no codec; the denoiser sees the picture itself, in patches as wide as before."""

from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.shared import price
from fulcrum.networks.fillers import Pixels
from fulcrum.spec.edit import put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import Velocity


class UsePixels(Lever):
    name = "pixels"
    touches = ("encode.codec", "model.patch")
    card = Card(
        says="no codec between the picture and the denoiser; patches grow by its stride, so the tokens stay as many",
        warns="velocity cannot be learned well where a patch is wider than the network; "
        "validation losses are not comparable with those of latents",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if isinstance(run.encode.codec, Pixels):
            raise BadInput("'pixels' would change nothing: the run has no codec already", "leave it out")
        return put_all(run, [("encode.codec", Pixels()), ("model.patch", run.model.patch * run.encode.codec.stride)])

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        return None if codec.stride == 1 else f"the denoiser still sees what {codec} makes, of stride {codec.stride}"

    def idle(self, run: RunSpec) -> str:
        numbers = run.encode.codec.channels * run.model.patch**2
        if numbers <= run.model.width or not isinstance(run.flow.predict, Velocity):
            return ""
        width = run.model.width
        return f"a patch has {numbers} numbers, the network {width}: velocities cannot pass through it, pictures could"

    def cost(self, run: RunSpec) -> Cost:
        """The denoiser's wider patches; a frozen codec costs a step nothing, its latents come from the cache."""
        if isinstance(run.encode.codec, Pixels):
            return Cost()
        return price.of_denoiser(run, self.edit(run))

    def witness(self, built: Built) -> bool:
        batch = built.feed.at(0)[0]
        pictures = built.feed.source_at(0).read(batch.ids[:1].cpu().numpy()).images
        return tuple(batch.x0.shape[1:]) == pictures.shape[1:] and bool(built.feed.codec().stride == 1)
