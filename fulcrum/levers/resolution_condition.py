"""Resolution conditioning: the denoiser is told how large the picture is that it draws.

sinusoids of height and width -> two linears -> added to the time's vector
"""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.condition_lever import Conditioning, hears
from fulcrum.model.fillers import Resolution


class ResolutionCondition(Conditioning):
    name = "resolution_condition"
    filler = Resolution
    card = Card(
        says="height and width of what is drawn enter the time vector, as PRX's released model can have it; says nothing "
        "in a run of one size, and can only pay in one that sees several",
        warns="nothing of what a picture was before it was cut and resized: that is another thing to be told",
    )

    def witness(self, built: Built) -> bool:
        embedder = built.step.backbone.resolution_embedder
        return embedder is not None and hears(embedder, (8.0, 8.0), (16.0, 8.0))
