"""Levers that route tokens around the middle blocks: TREAD and SPRINT."""

from typing import Literal

from fulcrum.levers import published as price
from fulcrum.levers.base import ANY, Built, Card, Cost, Swap
from fulcrum.levers.published import FEW_TOKENS, MANY_TOKENS, claim
from fulcrum.levers.stages import StageRate, at_own_rate, rate_since
from fulcrum.spec.edit import during, put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Fraction, Part, Until
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import misfit, route_of
from fulcrum.training.model.fillers import Carry, Dense, DropAndFuse

# --------------------------------------------------------------------------------------------------
# What the levers that route tokens share: when a route cannot work in a run, what it saves, and a
# witness.


class Routing(Swap):
    """A lever that puts a route with a setting `drop` into the model; a subclass says which."""

    slot = "model.route"

    def needs(self, run: RunSpec) -> str | None:
        try:
            route = route_of(run)
            if route.kept(run.tokens) == run.tokens:
                return (
                    f"of {run.tokens} tokens a share of {self.drop:g} is none: nothing would be"
                    " dropped"
                )
            return misfit(route, run.model.depth)
        except BadInput as error:
            return error.message

    def cost(self, run: RunSpec) -> Cost:
        """Against the run with every token in every block, at all times."""
        others = tuple(
            stage for stage in run.data.stages if not stage.path.startswith("model.route")
        )
        dense = put_all(run, [("data.stages", others), ("model.route", Dense())])
        return price.of_denoiser(dense, self.edit(dense))

    def witness(self, built: Built) -> bool:
        """The first step of a stage keeps a part of the tokens; a smaller size before it may have
        but one."""
        kept = ((phase.run.tokens, built.feed.at(phase.start)[1].keep) for phase in built.phases)
        return any(keep is not None and keep.shape[1] < tokens for tokens, keep in kept)


# --------------------------------------------------------------------------------------------------
# SPRINT: the middle blocks see a quarter of the tokens, and a learned linear joins them with all.
# arXiv:2510.21986
#
#     tokens ──► block 0 … ──┬── one of every 2 x 2 ──► blocks start … end ──► grid of ───────┐
#                            │                                                 mask tokens    │
#                            └──────────────────────────── dense ─────────────────────────────┤
#                                                                         ◄── W [·; ·] + b ◄──┘
#
# With probability `path_drop` a sample gets mask tokens only; the last part of the budget keeps
# every token.


LATER = "by the published code, which routes blocks 2 to 12 of 16 and lacks the paper's other parts"
PUBLISHED = {
    "path_drop": 0.0,
    "full_from": None,
    "choice": "uniform",
    "mask": "learned",
    "start": ANY,
    "end": ANY,
}


class Sprint(Routing):
    drop: Fraction = 0.75  # share of tokens that the span does not see; a stage of it may drop none
    #: of the tokens: from all, or as many of every 2 x 2 group
    choice: Literal["uniform", "grouped"] = "grouped"
    #: the token that stands for those not seen; frozen at zero
    mask: Literal["learned", "frozen"] = "frozen"
    path_drop: Part = 0.1  # share of samples that learn to do without the span
    full_from: Until | None = 0.9  # from here on, a share, no token is dropped
    #: of that stage, a share of the run's own; none: the run's schedule goes on
    full_rate: StageRate | None = 1.0

    name = "sprint"
    filler = DropAndFuse
    settings = ("drop", "start", "end", "choice", "mask", "path_drop")
    touches = ("model.route", "data.stages")
    card = Card(
        says=(
            "few tokens in the middle blocks, joined with all by a learned linear; pays when there"
            " are many tokens. As its authors have it: one token of every 2 x 2 group (a uniform"
            " choice leaves about 30 % of the groups empty), a frozen mask token, the sparse path"
            " of a tenth of the samples dropped, two dense blocks at each end (from eight blocks"
            " on; one at each end of a smaller model), every token in a last stage"
        ),
        claims=(
            claim(
                "fid",
                -0.52,
                MANY_TOKENS,
                note=f"1.33 to 1.89 batches/s; {LATER}",
                carries=False,
                settings=PUBLISHED,
            ),
            claim(
                "fid",
                +4.36,
                FEW_TOKENS,
                note=f"3.95 to 4.20 batches/s; {LATER}",
                carries=False,
                settings=PUBLISHED,
            ),
            claim("cmmd", -0.20, MANY_TOKENS, carries=False, settings=PUBLISHED),
            claim("cmmd", +0.31, FEW_TOKENS, carries=False, settings=PUBLISHED),
        ),
        warns=(
            "published at 75 % dropped beside TREAD at 50 %: the two were never compared at one"
            " budget. The published arm was not the paper's: sprint(choice=uniform, mask=learned,"
            " path_drop=0.0, full_from=none), in blocks 2 to 12 of 16. The model keeps the joining"
            " linear and cannot be exported to diffusers"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        run = super().edit(run)
        if self.full_from is None or self.full_from == 1:
            return run
        return at_own_rate(
            during(run, self.full_from, 1.0, "model.route.drop", 0.0),
            self.full_from,
            self.full_rate,
        )

    def in_run(self, run: RunSpec) -> str:
        return (
            "" if self.full_from is None or self.full_from == 1 else rate_since(run, self.full_from)
        )

    def witness(self, built: Built) -> bool:
        """The built model joins two paths, and the first step keeps a part of the tokens."""
        return bool(built.step.backbone.fuses) and super().witness(built)


# --------------------------------------------------------------------------------------------------
# TREAD: a random half of the tokens takes a shortcut around the middle blocks.  arXiv:2501.04765
#
# tokens ──► block 0,1 ──┬── kept ──► blocks start … end ──┬──► block end+1 … ──► out
#                        └── others ───────(unchanged)─────┘


class Tread(Routing):
    name = "tread"
    filler = Carry
    card = Card(
        says="fewer tokens in the middle blocks; pays when there are many tokens",
        claims=(
            claim(
                "fid",
                -3.32,
                MANY_TOKENS,
                note="1.33 to 1.64 batches/s; the published arm also changed the sampler",
                carries=False,
            ),
            claim(
                "fid",
                +3.41,
                FEW_TOKENS,
                note="3.95 to 4.11 batches/s; the published arm also changed the sampler",
                carries=False,
            ),
            claim("cmmd", -0.25, MANY_TOKENS, carries=False),
            claim("cmmd", +0.14, FEW_TOKENS, carries=False),
        ),
        train_only=True,
        warns=(
            "blocks 2 to 12 of 16, counted from zero, as published; at other depths the same share"
            " of them, and a block at each end stays dense"
        ),
    )
