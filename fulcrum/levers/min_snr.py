"""Min-SNR weighting: times near the data, which are easy and many, count less.  arXiv:2303.09556

weight of (v - u)^2 at t = min((1 - t)^2 / n^2, gamma t^2), from min(SNR, gamma) on the error of x0, with noise of scale n
and SNR = (1 - t)^2 / (n t)^2
"""

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.training.flow.fillers import MinSNR


class UseMinSNR(Swap):
    name = "min_snr"
    slot, filler = "flow.weight", MinSNR
    card = Card(
        says="times count by their signal-to-noise ratio, capped: both ends of the path lose weight (published for "
        "class-conditional diffusion on a cosine schedule with gamma 5, never on this path)",
        train_only=True,
        warns="pure noise (t = 1) counts nothing; the loss is on another scale than the baseline's",
    )

    def witness(self, built: Built) -> bool:
        t, noise = built.feed.at(0)[1].t.cpu(), built.run.flow.noise_scale
        weight = built.step.terms["flow_matching"].weight(t)
        by_hand = [min(((1 - time) / noise) ** 2, self.gamma * time**2) for time in t.tolist()]
        return all(abs(a - b) < 1e-5 for a, b in zip(weight.tolist(), by_hand, strict=True))
