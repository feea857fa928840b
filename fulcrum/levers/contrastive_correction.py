"""Contrastive correction: pictures are drawn without the stretch that a contrastive term teaches.  arXiv:2506.05350

v <- (1 - lambda) v + lambda u_mean,  v guided away from the empty prompt, u_mean the mean velocity of the training set
"""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.guidance_lever import Guiding
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import CorrectedCFG


class ContrastiveCorrection(Guiding):
    name = "contrastive_correction"
    filler, settings = CorrectedCFG, ("scale", "weight")
    path = "full"
    card = Card(
        says="draws with what a contrastive term meant instead of what it asked for: its authors do so wherever they guide "
        "(class-conditional ImageNet and CC3M; no number for this alone), the published arm of PRX Part 2 did not",
        warns="u_mean is minus the mean latent of the first 256 training pictures, place by place: the negatives are "
        "independent samples, so their mean velocity is that of the whole set, and the same at every time. The pictures "
        "must be at hand where the run is drawn with; it takes the place of plain guidance and keeps its scale",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(super().edit(run), "sample.guide.weight", self.weight)

    def needs(self, run: RunSpec) -> str | None:
        guide = run.sample.guide
        return guide.missing(run) if isinstance(guide, CorrectedCFG) else "another guide is in its place"

    def witness(self, built: Built) -> bool:
        """A velocity that is stretched as the term asks comes back as it was before."""
        import torch

        guide = built.run.sample.guide
        weight = (self.weight or guide.stretch(built.run)) if isinstance(guide, CorrectedCFG) else None
        if weight is None:
            return False
        correct = guide.build(built)
        x_t = torch.ones_like(built.feed.at(0)[1].eps[:2])
        t = torch.tensor([0.3, 0.9], device=x_t.device)
        meant, mean = 2 * x_t, correct.mean_velocity(x_t, t)
        back = correct.corrected((meant - weight * mean) / (1 - weight), x_t, t)
        return bool((back - meant).abs().max() < 1e-4)
