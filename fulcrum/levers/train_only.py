"""Partial fine-tuning: only the weights of the chosen roles learn, all others stay as they began."""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.partial_lever import PartialLearning, moving
from fulcrum.training.model.fillers import ChosenWeights


class TrainOnly(PartialLearning):
    name = "train_only"
    filler = ChosenWeights
    card = Card(
        says="fine-tuning of some weights, chosen by role (matrix, embed, head, vector) or by what a layer of a block is "
        "for (attention_in, attention_out, text, feed_forward, modulation), in all blocks or from one to another; nothing "
        "is added. The other weights' gradients and optimizer state are saved",
        train_only=True,
        warns="needs trained weights to begin from (--start RUN or the folder of a pipeline), or it is refused; its "
        "learning rate is its own",
    )

    def witness(self, built: Built) -> bool:
        """What gets gradients and updates is what the roles name in the built model, and less than all."""
        from fulcrum.training.model.layers import words

        backbone = built.step.backbone
        blocks = {id(weight): number for number, block in enumerate(backbone.blocks) for weight in block.parameters()}
        known, learned = words(backbone), self.made()
        weights = dict(backbone.named_parameters())
        chosen = {name for name in weights if learned.learns(known[name], blocks.get(id(weights[name])), backbone.depth)}
        return bool(chosen) and len(chosen) < len(weights) and moving(built) == {f"backbone.{name}" for name in chosen}
