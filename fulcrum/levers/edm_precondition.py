"""EDM preconditioning: what the network sees and what it gives have unit variance at every time.  arXiv:2206.00364

x_t ── x c_in ──► network ──► F ── x c_out ──┬──► x0
  └───────────────── x c_skip ───────────────┘        c_in, c_skip, c_out of sigma = t / (1 - t)
"""

from fulcrum.flow.fillers import Preconditioned
from fulcrum.levers.base import Built, Card, Swap
from fulcrum.spec.run import RunSpec


class EDMPrecondition(Swap):
    name = "edm_precondition"
    slot, filler = "flow.predict", Preconditioned
    card = Card(
        says="inputs and targets of unit variance at every time; the loss stays on the velocity",
        warns="sigma_data 1 is right for normalised latents; in pixels set it to their spread, about 0.45",
    )

    def needs(self, run: RunSpec) -> str | None:
        predict = run.flow.predict
        return None if isinstance(predict, Preconditioned) else f"the network's output means something else here: {predict}"

    def witness(self, built: Built) -> bool:
        """What the network would see of data and noise in the declared spreads has unit variance at any time."""
        batch, draw = built.feed.at(0)
        t, scale = draw.t, built.run.flow.noise_scale
        spread = ((scale * t) ** 2 + (self.sigma_data * (1 - t)) ** 2).sqrt()
        seen = built.step.predict.inputs(spread.view(-1, 1, 1, 1).expand_as(batch.x0), t)
        return bool((seen - 1).abs().max() < 1e-5)
