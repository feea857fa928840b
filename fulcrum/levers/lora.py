"""LoRA: the weights stay as they began, and small products learn beside the chosen layers.  arXiv:2106.09685

x ──► W (frozen) ──────────────────┬──► y
 └──► down (r x D) ──► up (E x r) ─┘ times alpha / r
"""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.partial_lever import PartialLearning, moving
from fulcrum.spec.run import RunSpec
from fulcrum.training.model.fillers import LowRank


class Lora(PartialLearning):
    name = "lora"
    filler = LowRank
    card = Card(
        says="fine-tuning by a file of a few kilobytes to megabytes: beside each chosen layer a product of rank r learns, "
        "all else stays. A third of a step's FLOPs, the gradients of the weights, and their optimizer state are saved",
        train_only=True,
        warns="needs trained weights to begin from (--start RUN or the folder of a pipeline): beside random ones it learns "
        "next to nothing, so that is refused. Pictures are drawn with the products merged into the weights; "
        "fulcrum export --adapter writes them alone. Its learning rate is its own: the recipe's was chosen for all weights",
    )

    def in_run(self, run: RunSpec) -> str:
        from fulcrum.spec.flops import own_parameters, parameters

        learned, own = parameters(run) - own_parameters(run), own_parameters(run)
        return f"{learned:,} parameters learn beside {own:,} that do not ({learned / own:.1%})"

    def witness(self, built: Built) -> bool:
        """Only products beside layers get gradients and updates, and the first layer's is of the rank."""
        from fulcrum.training.model.adapter import is_beside

        names, weights = moving(built), dict(built.step.backbone.named_parameters(prefix="backbone"))
        ranks = {weights[name].shape[0] for name in names if name.endswith(".down")}
        return bool(names) and all(map(is_beside, names)) and ranks == {self.rank}
