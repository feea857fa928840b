"""TREAD: a random half of the tokens takes a shortcut around the middle blocks.  arXiv:2501.04765

tokens ──► block 0,1 ──┬── kept ──► blocks start … end ──┬──► block end+1 … ──► out
                       └── others ───────(unchanged)─────┘
"""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.published import FEW_TOKENS, MANY_TOKENS, claim
from fulcrum.levers.shared.routing_lever import Routing
from fulcrum.training.model.fillers import Carry


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
        warns="blocks 2 to 12 of 16, counted from zero, as published; at other depths the same share of them, and a block "
        "at each end stays dense",
    )
