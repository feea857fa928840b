"""SPRINT: the middle blocks see a quarter of the tokens, and a learned linear joins them with all.  arXiv:2510.21986

    tokens ──► block 0 … ──┬── one of every 2 x 2 ──► blocks start … end ──► on a grid of mask tokens ──┐
                           └──────────────────────────── dense ─────────────────────────────────────────┴─► W [·; ·] + b ──►

With probability `path_drop` a sample gets mask tokens only; the last part of the budget keeps every token.
"""

from typing import Literal

from fulcrum.levers.base import ANY, Built, Card
from fulcrum.levers.shared.published import FEW_TOKENS, MANY_TOKENS, claim
from fulcrum.levers.shared.routing_lever import Routing
from fulcrum.levers.shared.stage_rate import StageRate, at_own_rate, rate_since
from fulcrum.spec.edit import during
from fulcrum.spec.record import Fraction, Part, Until
from fulcrum.spec.run import RunSpec
from fulcrum.training.model.fillers import DropAndFuse

LATER = "by the published code, which routes blocks 2 to 12 of 16 and lacks the paper's other parts"
PUBLISHED = {"path_drop": 0.0, "full_from": None, "choice": "uniform", "mask": "learned", "start": ANY, "end": ANY}


class Sprint(Routing):
    drop: Fraction = 0.75  # share of tokens that the span does not see; a stage of it may drop none
    choice: Literal["uniform", "grouped"] = "grouped"  # of the tokens: from all, or as many of every 2 x 2 group
    mask: Literal["learned", "frozen"] = "frozen"  # the token that stands for those not seen; frozen at zero
    path_drop: Part = 0.1  # share of samples that learn to do without the span
    full_from: Until | None = 0.9  # from here on, a share, no token is dropped
    full_rate: StageRate | None = 1.0  # of that stage, a share of the run's own; none: the run's schedule goes on

    name = "sprint"
    filler = DropAndFuse
    settings = ("drop", "start", "end", "choice", "mask", "path_drop")
    touches = ("model.route", "data.stages")
    card = Card(
        says="few tokens in the middle blocks, joined with all by a learned linear; pays when there are many tokens. As "
        "its authors have it: one token of every 2 x 2 group (a uniform choice leaves about 30 % of the groups empty), a "
        "frozen mask token, the sparse path of a tenth of the samples dropped, two dense blocks at each end (from eight "
        "blocks on; one at each end of a smaller model), every token in a last stage",
        claims=(
            claim("fid", -0.52, MANY_TOKENS, note=f"1.33 to 1.89 batches/s; {LATER}", carries=False, settings=PUBLISHED),
            claim("fid", +4.36, FEW_TOKENS, note=f"3.95 to 4.20 batches/s; {LATER}", carries=False, settings=PUBLISHED),
            claim("cmmd", -0.20, MANY_TOKENS, carries=False, settings=PUBLISHED),
            claim("cmmd", +0.31, FEW_TOKENS, carries=False, settings=PUBLISHED),
        ),
        warns="published at 75 % dropped beside TREAD at 50 %: the two were never compared at one budget. The published "
        "arm was not the paper's: sprint(choice=uniform, mask=learned, path_drop=0.0, full_from=none), in blocks 2 to 12 "
        "of 16. The model keeps the joining linear and cannot be exported to diffusers",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        run = super().edit(run)
        if self.full_from is None or self.full_from == 1:
            return run
        return at_own_rate(during(run, self.full_from, 1.0, "model.route.drop", 0.0), self.full_from, self.full_rate)

    def in_run(self, run: RunSpec) -> str:
        return "" if self.full_from is None or self.full_from == 1 else rate_since(run, self.full_from)

    def witness(self, built: Built) -> bool:
        """The built model joins two paths, and the first step keeps a part of the tokens."""
        return bool(built.step.backbone.route.fuses) and super().witness(built)
