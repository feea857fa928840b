"""SPRINT: the middle blocks see a quarter of the tokens, and a learned linear joins them with all.  arXiv:2510.21986

    tokens ──► block 0 … ──┬── kept ──► blocks start … end ──► on a grid of mask tokens ──┐
                           └──────────────────── dense ───────────────────────────────────┴─► W [dense; sparse] + b ──► …

With probability `path_drop` a sample gets mask tokens only; the last part of the budget keeps every token.
"""

from fulcrum.levers.base import Built, Card
from fulcrum.levers.shared.published import FEW_TOKENS, MANY_TOKENS, claim
from fulcrum.levers.shared.routing_lever import Routing
from fulcrum.model.fillers import DropAndFuse
from fulcrum.spec.edit import during
from fulcrum.spec.record import Fraction, Part, Until
from fulcrum.spec.run import RunSpec

LATER = "by the published code, which has no path-drop, no guidance with it and no full-token stage: they are the paper's"
PUBLISHED = {"path_drop": 0.0, "full_from": None}


class Sprint(Routing):
    drop: Fraction = 0.75  # share of tokens that the span does not see; a stage of it may drop none
    path_drop: Part = 0.05  # share of samples that learn to do without the span
    full_from: Until | None = 0.9  # from here on, a share, no token is dropped

    name = "sprint"
    filler = DropAndFuse
    settings = ("drop", "start", "end", "path_drop")
    touches = ("model.route", "data.stages")
    card = Card(
        says="few tokens in the middle blocks, joined with all by a learned linear; pays when there are many tokens",
        claims=(
            claim("fid", -0.52, MANY_TOKENS, note=f"1.33 to 1.89 batches/s; {LATER}", carries=False, settings=PUBLISHED),
            claim("fid", +4.36, FEW_TOKENS, note=f"3.95 to 4.20 batches/s; {LATER}", carries=False, settings=PUBLISHED),
            claim("cmmd", -0.20, MANY_TOKENS, carries=False, settings=PUBLISHED),
            claim("cmmd", +0.31, FEW_TOKENS, carries=False, settings=PUBLISHED),
        ),
        warns="published at 75 % dropped beside TREAD at 50 %: the two were never compared at one budget. "
        "The model keeps the joining linear and cannot be exported to diffusers",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        run = super().edit(run)
        if self.full_from is None or self.full_from == 1:
            return run
        return during(run, self.full_from, 1.0, "model.route.drop", 0.0)

    def witness(self, built: Built) -> bool:
        """The built model joins two paths, and the first step keeps a part of the tokens."""
        return bool(built.step.backbone.route.fuses) and super().witness(built)
