"""REPA: a middle layer learns to speak as a frozen vision teacher does.  arXiv:2410.06940

block 0 ──► … ──► middle block ──► … ──► out
                      └──► 3-layer MLP ──► 1 - cosine with the teacher's token at the same place
"""

from typing import ClassVar

from fulcrum.levers.base import Card, Claim
from fulcrum.levers.shared.alignment_lever import Aligning

SCOPE = "256 px latents, 1.2 B parameters, 100k steps"
DINO3, DINO2 = f"{SCOPE}, DINOv3 teacher", f"{SCOPE}, DINOv2 teacher"


class Repa(Aligning):
    name: ClassVar[str] = "repa"
    card: ClassVar[Card] = Card(
        says="a middle layer is drawn towards a frozen teacher's features; pays early, is best switched off later (until=)",
        claims=(
            Claim(metric="fid", change=-3.56, scope=DINO3, source="PRX Part 2"),
            Claim(metric="cmmd", change=-0.06, scope=DINO3, source="PRX Part 2"),
            Claim(metric="fid", change=-1.60, scope=DINO2, source="PRX Part 2"),
            Claim(metric="cmmd", change=-0.02, scope=DINO2, source="PRX Part 2"),
        ),
        train_only=True,
        warns="the published teachers saw far more than the training set; the embedded one saw scenes of the same world, "
        "and its features are cached, where the published arms computed theirs in every step (12 % and 7 % slower)",
    )
