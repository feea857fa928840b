"""REPA: a middle layer learns to speak as a frozen vision teacher does.  arXiv:2410.06940

block 0 ──► … ──► middle block ──► … ──► out
                      └──► 3-layer MLP ──► 1 - cosine with the teacher's token at the same place
"""

from fulcrum.levers.base import ANY, Card
from fulcrum.levers.shared.alignment_lever import Aligning
from fulcrum.levers.shared.published import LATENTS, claim
from fulcrum.levers.shared.teacher_caution import or_supervised

DINO3, DINO2 = f"{LATENTS}, DINOv3 teacher", f"{LATENTS}, DINOv2 teacher"
TEACHER = {"teacher": ANY}  # ours stands in for the published ones


class Repa(Aligning):
    name = "repa"
    card = Card(
        says="a middle layer is drawn towards a frozen teacher's features; pays early; the articles end it (until=)",
        claims=(
            claim("fid", -3.56, DINO3, settings=TEACHER),
            claim("cmmd", -0.06, DINO3, settings=TEACHER),
            claim("fid", -1.60, DINO2, settings=TEACHER),
            claim("cmmd", -0.02, DINO2, settings=TEACHER),
        ),
        train_only=True,
        warns="the published teachers saw far more than the training set; the embedded one is small, and its features are "
        "cached, where the published arms computed theirs in every step (12 % and 7 % slower); "
        + or_supervised("the teacher"),
    )
