"""EDM preconditioning: what the network sees and what it gives have unit variance at every time.  arXiv:2206.00364

x_t ── x c_in ──► network ──► F ── x c_out ──┬──► x0
  └───────────────── x c_skip ───────────────┘        c_in, c_skip, c_out of sigma = n t / (1 - t), n the noise's scale
"""

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.levers.shared.data_deviation import unmeasured
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import Preconditioned, known_deviation


class EDMPrecondition(Swap):
    name = "edm_precondition"
    slot, filler = "flow.predict", Preconditioned
    card = Card(
        says="inputs and targets of unit variance at every time; the loss stays on the velocity, its times and weights are "
        "the run's (published for small pixel pictures, with EDM's own noise law and loss weight beside it)",
        warns="sigma_data is the spread of what the denoiser sees, as the codec's card or the world's pixels give it",
    )

    def needs(self, run: RunSpec) -> str | None:
        predict = run.flow.predict
        if not isinstance(predict, Preconditioned):
            return f"the network's output means something else here: {predict}"
        return unmeasured(run, self.sigma_data)

    def witness(self, built: Built) -> bool:
        """What the network would see of data and noise in their measured spreads has unit variance at any time."""
        batch, draw = built.feed.at(0)
        t, noise = draw.t, built.run.flow.noise_scale
        spread = ((noise * t) ** 2 + (known_deviation(built.run, self.sigma_data) * (1 - t)) ** 2).sqrt()
        seen = built.step.predict.inputs(spread.view(-1, 1, 1, 1).expand_as(batch.x0), t)
        return bool((seen - 1).abs().max() < 1e-5)
