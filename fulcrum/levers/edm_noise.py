"""EDM's noise law: the logarithm of the noise level is normal, as published with mean -1.2 and deviation 1.2.

ln sigma ~ N(-1.2, 1.2) for data of deviation 0.5; sigma / 0.5 = n t / ((1 - t) s) for ours, s the data's deviation and n
the noise's scale, so that a level destroys as much of the picture as it did there.  arXiv:2206.00364
"""

from math import exp

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.levers.shared.data_deviation import unmeasured
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import EDM_SIGMA_DATA, EDMNoise, known_deviation


class UseEDMNoise(Swap):
    name = "edm_noise"
    slot, filler = "flow.time", EDMNoise
    card = Card(
        says="times from EDM's log-normal noise levels: most of the budget at low noise (published for CIFAR-10 and "
        "ImageNet-64 in pixels, with EDM's preconditioning and loss weight; SD3 ranked edm(-1.2, 1.2) far behind "
        "logit-normal times on latents)",
        train_only=True,
        warns="no share of the times is uniform and none is shifted: the law is EDM's whole; sampling keeps the run's grid",
    )

    def needs(self, run: RunSpec) -> str | None:
        if not isinstance(run.flow.time, EDMNoise):
            return f"something else chose the times: {run.flow.time}"
        return unmeasured(run, self.sigma_data)

    def witness(self, built: Built) -> bool:
        """The draw's times are those of EDM's noise levels at the quantiles that its uniform numbers name."""
        from statistics import NormalDist

        import numpy as np

        from fulcrum.training.flow import noise as keyed_noise

        t, run = built.feed.at(0)[1].t.cpu().tolist(), built.run
        u = keyed_noise.uniform(built.seed, "t", np.arange(len(t)))[:, 0].double().tolist()
        per_level = known_deviation(run, self.sigma_data) / EDM_SIGMA_DATA / run.flow.noise_scale
        ratios = [per_level * exp(self.mean + self.deviation * NormalDist().inv_cdf(number)) for number in u]  # t / (1 - t)
        return all(abs(time - ratio / (1 + ratio)) < 1e-5 for time, ratio in zip(t, ratios, strict=True))
