"""Dispersive loss: the samples of a chunk are pushed apart inside the network.  arXiv:2506.09027

L_i = log mean_j exp(-d(z_i, z_j) / tau), with z the mean token of a block and d the mean squared
difference of two of them.
"""

from fulcrum import Card, Lever, put
from fulcrum.spec.record import Count, Factor
from fulcrum.spec.slots import TermFiller


class Dispersive(TermFiller):
    kind = "dispersive"
    name: str = "dispersive"
    weight: Factor = 0.5
    layer: Count = 2
    tau: Factor = 0.5
    chunk: Count = 8  # rows that are compared with each other

    def build(self, ctx):
        import torch

        class Term(torch.nn.Module):
            taps = (self.layer,)

            def forward(term, view):
                z = view.taps[self.layer].h.float().mean(1).unflatten(0, (-1, self.chunk))
                apart = (z.unsqueeze(2) - z.unsqueeze(1)).square().mean(-1)  # (B / c, c, c)
                return (-apart / self.tau).exp().mean(-1).log().flatten()

        return Term()


class UseDispersive(Lever):
    name, touches = "dispersive", ("terms",)
    card = Card(says="push the samples of a batch apart inside the network", train_only=True)

    def edit(self, run):
        return put(run, "terms.dispersive", Dispersive())

    def witness(self, built):
        return "dispersive" in built.step.terms
