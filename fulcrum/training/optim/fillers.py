"""Records of the update rules."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Fraction, Positive, Within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.nn import Parameter

    from fulcrum.training.build import Context
    from fulcrum.training.optim.optimizers import Rule


ROLES = ("matrix", "embed", "head", "vector")


def rounding_seed(ctx: "Context") -> int | None:
    """Random rounding is keyed by the run's seed; None rounds to nearest."""
    return ctx.seed if ctx.run.precision.rounding == "stochastic" else None


class AdamWRule(slots.RuleFiller):
    kind = "adamw"
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    eps: Positive = 1e-15
    weight_decay: Annotated[float, Within("[0, 100]")] = 0.0
    remembers: ClassVar[int] = 2  # numbers kept per parameter: both moments

    def build(self, ctx: "Context") -> "Rule":
        from fulcrum.training.optim.optimizers import groups

        return self.adam(
            ctx, groups(ctx.parameters.items(), ctx.roles, dict.fromkeys(ROLES, "adamw"))["adamw"]
        )

    def adam(self, ctx: "Context", parameters: "Mapping[str, Parameter]") -> "Rule":
        """One rule, or one for each learning rate: `ctx.rates` names the parameters that do not
        take the run's own."""
        from fulcrum.training.optim.optimizers import AdamW, Joint

        rates = {name: ctx.rates.get(name, 1.0) for name in parameters}
        rules = [
            AdamW(
                {name: p for name, p in parameters.items() if rates[name] == rate},
                lr=ctx.run.optim.lr * rate,
                betas=(self.beta1, self.beta2),
                eps=self.eps,
                weight_decay=self.weight_decay,
                storage=ctx.dtype("storage"),
                state=ctx.dtype("optimizer"),
                rounding=rounding_seed(ctx),
            )
            for rate in dict.fromkeys(rates.values())
        ]
        return rules[0] if len(rules) == 1 else Joint(rules)


class MuonRule(AdamWRule):
    """Matrices by orthogonalised momentum, everything else exactly as under AdamW."""

    kind = "muon"
    momentum: Fraction = 0.95
    newton_schulz: Annotated[int, Within("[1, 100]")] = 5
    lr_ratio: Factor = 1.0  # of the matrices' rate to the run's
    remembers: ClassVar[int] = 1  # the momentum; of the matrices, which are nearly all

    def build(self, ctx: "Context") -> "Rule":
        from fulcrum.training.model.transformer import Cast
        from fulcrum.training.optim.muon import Muon, undealt
        from fulcrum.training.optim.optimizers import Joint, groups

        placed = groups(
            ctx.parameters.items(), ctx.roles, {**dict.fromkeys(ROLES, "adamw"), "matrix": "muon"}
        )
        if not placed["muon"]:
            raise BadInput(
                "muon orthogonalises the matrices of the blocks, and none of them learns in"
                " this run",
                "let some learn, or leave muon out",
            )
        if ctx.ranks.size > 1:
            from fulcrum.training.dist.matrix_owners import Owners

            deal: Any = Owners(ctx.ranks)
        else:
            deal = undealt
        matrices = Muon(
            placed["muon"],
            lr=ctx.run.optim.lr * self.lr_ratio,
            momentum=self.momentum,
            steps=self.newton_schulz,
            weight_decay=self.weight_decay,
            compute=Cast(ctx.dtype("compute"), ctx.emulates),
            storage=ctx.dtype("storage"),
            state=ctx.dtype("optimizer"),
            rounding=rounding_seed(ctx),
            deal=deal,
        )
        return Joint([matrices, self.adam(ctx, placed["adamw"])]) if placed["adamw"] else matrices


FILLERS = (AdamWRule, MuonRule)
