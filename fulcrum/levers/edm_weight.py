"""EDM's loss weight: every noise level counts as much as its preconditioned output errs.  arXiv:2206.00364

(sigma^2 + s^2) / (sigma s)^2 on the error of x0; on that of v, with sigma = n t / (1 - t): t^2 / s^2 + (1 - t)^2 / n^2
"""

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.levers.shared.data_deviation import unmeasured
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import EDMLoss, known_deviation


class UseEDMWeight(Swap):
    name = "edm_weight"
    slot, filler = "flow.weight", EDMLoss
    card = Card(
        says="the middle of the path counts about half of both ends (published for small pixel pictures, with EDM's "
        "preconditioning and noise law beside it)",
        train_only=True,
        warns="the loss is on another scale than the baseline's",
    )

    def needs(self, run: RunSpec) -> str | None:
        return unmeasured(run, self.sigma_data)

    def witness(self, built: Built) -> bool:
        t, noise = built.feed.at(0)[1].t.cpu(), built.run.flow.noise_scale
        spread = known_deviation(built.run, self.sigma_data)
        weight = built.step.terms["flow_matching"].weight(t)
        by_hand = [(time / spread) ** 2 + ((1 - time) / noise) ** 2 for time in t.tolist()]
        return all(abs(a - b) < 1e-5 * max(1.0, b) for a, b in zip(weight.tolist(), by_hand, strict=True))
