"""Lion: the sign of an interpolated momentum.  arXiv:2302.06675"""

from fulcrum.levers.base import Card, Swap
from fulcrum.spec.record import Factor, Fraction
from fulcrum.spec.slots import RuleFiller


class LionRule(RuleFiller):
    kind = "lion"
    beta1: Fraction = 0.9
    beta2: Fraction = 0.99
    lr_ratio: Factor = 0.1  # of its rate to the run's: every element moves by as much
    remembers = 1  # numbers kept for each parameter

    def build(self, ctx):
        from fulcrum.training.optim.optimizers import UpdateRule

        class Lion(UpdateRule):
            memory = ("momentum",)

            def update(rule, weight, gradient, memory, lr):
                direction = memory["momentum"].lerp(gradient, 1 - self.beta1).sign()
                weight.sub_(lr * self.lr_ratio * direction)
                memory["momentum"].lerp_(gradient, 1 - self.beta2)
                return direction

        return Lion(ctx)


class UseLion(Swap):
    name = "lion"
    slot, filler = "optim.rule", LionRule
    card = Card(says="the sign of a momentum as the update, at a tenth of the rate")

    def witness(self, built):
        return all(name.startswith("momentum/") for name in built.optimizer.state())
