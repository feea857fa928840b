"""Records of the loss terms."""

from typing import Any, ClassVar

from fulcrum.spec import seam


class FlowMatching(seam.Term):
    kind: ClassVar[str] = "flow_matching"
    name: str = "flow_matching"
    weight: float = 1.0

    def build(self, ctx: Any) -> Any:
        from fulcrum.loss.flow_matching import FlowMatchingTerm
        return FlowMatchingTerm(ctx.run.flow.weight.build(ctx))


FILLERS = (FlowMatching,)
