"""One step: a pure function of a batch and a draw."""

import copy
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from fulcrum.networks.rows import Batch
from fulcrum.spec.errors import BadInput
from fulcrum.spec.slots import PredictFiller
from fulcrum.training.dist.collectives import is_sharded
from fulcrum.training.flow.fillers import mix
from fulcrum.training.flow.noise import Draw
from fulcrum.training.loss.terms import Coded, Losses, View, weigh
from fulcrum.training.model.passes import Passes
from fulcrum.training.model.transformer import Backbone, Out, Tokens, narrowed

# --------------------------------------------------------------------------------------------------
# The first blocks of a denoiser with weights that get no gradient: what a codec is trained through.
#
# A model of its own, so that passes, lanes, recomputing, compiling and sharding are those of any
# model; its weights are the denoiser's own memory, or, sharded, a copy of each process's slices.


def stem_of(backbone: Backbone, last: int) -> Backbone:
    """A model that ends after block `last` and has no head. It follows `backbone` when it is told
    to."""
    stem = copy.deepcopy(backbone)
    stem.blocks, stem.final_layer = stem.blocks[: last + 1], None
    return stem.requires_grad_(False)


@torch.no_grad()
def follow(stem: Backbone, backbone: Backbone) -> None:
    """Give a stem the weights of its denoiser as they stand; not while a forward has gathered some
    of them."""
    weights = dict(backbone.named_parameters())
    for name, weight in stem.named_parameters():
        if is_sharded(weight):
            weight.to_local().copy_(weights[name].to_local())  # type: ignore[attr-defined]
        else:
            weight.data = weights[name].data


# --------------------------------------------------------------------------------------------------
# One step: a pure function of a batch and a draw. The root that gets sharded; everything
# differentiable is in here.


class Step(nn.Module):
    """losses = step(batch, draw). `weights` says which terms are on and how much they count; None =
    the run's own."""

    __call__: Callable[..., Losses]

    def __init__(
        self,
        backbone: Backbone,
        predict: PredictFiller,
        terms: Mapping[str, nn.Module],
        weights: Mapping[str, float],
        lanes: int = 1,  # threads that take passes of a batch side by side
        loss: torch.dtype = torch.float32,  # of what every term is given and gives
    ) -> None:
        super().__init__()
        self.backbone, self.predict = backbone, predict
        self.denoise = Passes(backbone, lanes)
        self.terms, self.weights, self.loss_dtype = nn.ModuleDict(terms), dict(weights), loss
        self.codec: Any = None  # joins after the keyed start, if it is trained: see build
        # the denoiser's first blocks, frozen, if a codec is trained through them
        self.stem: Passes | None = None
        self.taps, self.frozen_taps = (
            tuple(sorted({layer for term in terms.values() for layer in getattr(term, kind, ())}))
            for kind in ("taps", "frozen_taps")
        )
        if lost := [i for i in (*self.taps, *self.frozen_taps) if not 0 <= i < backbone.depth]:
            raise BadInput(
                f"no block to tap at {lost}: this model has blocks 0 to {backbone.depth - 1}",
                "name other blocks in `taps` or `frozen_taps` of the term",
            )

    def forward(
        self, batch: Batch, draw: Draw, weights: Mapping[str, float | Tensor] | None = None
    ) -> Losses:
        weights = self.weights if weights is None else weights
        view = self.look(batch, draw)
        if self.loss_dtype != torch.float32:
            view = self.as_terms_see(view)
        parts = {name: self.terms[name](view) for name in weights}
        for name, part in parts.items():
            if getattr(part, "shape", None) != draw.t.shape:
                given = (
                    f"the shape {tuple(part.shape)}"
                    if isinstance(part, Tensor)
                    else type(part).__name__
                )
                raise BadInput(
                    f"the term '{name}' gave {given}, expected one number per image,"
                    f" {tuple(draw.t.shape)}",
                    "average over everything but the first axis",
                )
        if self.loss_dtype != torch.float32:
            parts = {name: narrowed(part, self.loss_dtype) for name, part in parts.items()}
        losses = weigh(parts, weights)
        return losses if view.coded is None else losses._replace(moments=view.coded.moments())

    def models(self) -> tuple[Backbone, ...]:
        """The denoiser, and its frozen stem if there is one: what is compiled, and computed
        again."""
        return (self.backbone,) if self.stem is None else (self.backbone, self.stem.backbone)

    def refresh(self) -> None:
        """Before a step: a stem takes over the denoiser's weights. Nothing changes inside
        `forward`."""
        if self.stem is not None:
            follow(self.stem.backbone, self.backbone)

    @torch.no_grad()
    def settle(self, moments: Tensor) -> None:
        """After an update: let the statistics of a trained codec follow the batch. Nothing changes
        inside `forward`."""
        self.codec.settle(moments)

    def clipped_apart(self) -> list[list[nn.Parameter]]:
        """The denoiser's parameters and its terms', and a trained codec's: neither's gradient
        shortens the other's."""
        own = [] if self.codec is None else list(self.codec.parameters())
        of_codec = set(map(id, own))
        return [[weight for weight in self.parameters() if id(weight) not in of_codec], own]

    def look(self, batch: Batch, draw: Draw) -> View:
        """Prediction and target of every sample, as the terms see them."""
        batch, coded = self.encoded(batch, draw)
        x_t = mix(batch.x0, draw.eps, draw.t)
        text = batch.text.with_dropped(draw.drop_text, batch.empty_text)
        out = self.through(self.denoise, x_t, batch._replace(text=text), draw, self.taps)
        v, x = self.predict.to_v(out.pred, x_t, draw.t), self.predict.to_x(out.pred, x_t, draw.t)
        target = self.predict.to_v(self.predict.ideal(batch.x0, draw.eps, draw.t), x_t, draw.t)
        return View(
            batch,
            draw,
            v=v,
            target=target,
            x=x,
            taps=out.taps,
            coded=coded,
            terms=dict(self.terms.items()),
        )

    def through(
        self, model: Passes, x_t: Tensor, batch: Batch, draw: Draw, taps: tuple[int, ...]
    ) -> Out:
        """What the denoiser, or its frozen stem, makes of a noised latent."""
        return model(
            self.predict.inputs(x_t, draw.t),
            draw.t,
            batch.text,
            draw.keep,
            taps,
            size=batch.geometry,
            drop_path=draw.drop_path,
        )

    def as_terms_see(self, view: View) -> View:
        """In the loss's dtype. The mean over the batch stays fp32: it must not depend on the parts
        a batch is taken in."""
        v, target, x = (narrowed(field, self.loss_dtype) for field in (view.v, view.target, view.x))
        return view._replace(v=v, target=target, x=x)

    def encoded(self, batch: Batch, draw: Draw) -> tuple[Batch, Coded | None]:
        """A codec that is trained reads the batch's pixels here. What the denoiser sees has no
        history: letting its loss reach the codec makes latents that are easy to predict and say
        nothing."""
        if self.codec is None:
            return batch, None
        mean, log_variance = self.codec.posterior(batch.x0)
        # none: of pictures that are held out the mean is shown
        noise = draw.extra.get("codec/noise")
        sample = mean if noise is None else mean + (0.5 * log_variance).exp() * noise
        raw = sample if self.codec.sampled else mean
        latent = self.codec.normalised(raw)
        decoded = cache(partial(self.codec.raw_decode, sample))
        taps = cache(partial(self.read_by_stem, latent, batch, draw))
        return batch._replace(x0=latent.detach()), Coded(
            batch.x0, mean, log_variance, raw, latent, decoded, taps
        )

    def read_by_stem(self, latent: Tensor, batch: Batch, draw: Draw) -> dict[int, Tokens]:
        """How the denoiser as it stands reads the codec's latent under the step's own noise; every
        caption is there, as the denoiser is not being trained here."""
        if self.stem is None:
            raise ValueError(
                "no term said that it reads the frozen denoiser: it needs an attribute"
                " `frozen_taps`"
            )
        return self.through(
            self.stem, mix(latent, draw.eps, draw.t), batch, draw, self.frozen_taps
        ).taps
