"""Resolution conditioning: the denoiser is told how large the picture is that it draws.

sinusoids of height and width -> two linears -> added to the time's vector
"""

from fulcrum.data.fillers import World
from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.condition_lever import Conditioning, hears
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases
from fulcrum.training.model.fillers import Resolution


class ResolutionCondition(Conditioning):
    name = "resolution_condition"
    filler = Resolution
    card = Card(
        says="height and width of what is drawn enter the time vector, as PRX's released model can have it; says nothing "
        "in a run of one size, and can only pay in one that sees several",
        warns="nothing of what a picture was before it was cut and resized: that is another thing to be told",
    )

    def idle(self, run: RunSpec) -> str:
        sizes = {phase.run.data.size for phase in phases(run)}
        if len(sizes) > 1 or not isinstance(run.data.source, World):  # an imported folder may have several shapes
            return ""
        return "every picture of this run has one size, so it would be told nothing"

    def witness(self, built: Built) -> bool:
        embedder = built.step.backbone.resolution_embedder
        return embedder is not None and hears(embedder, (8.0, 8.0), (16.0, 8.0))
