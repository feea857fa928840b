"""Path-drop guidance: pictures move away from what the short path gives for the empty prompt.

v = v_short(empty) + w (v_full(prompt) - v_short(empty)),  the short path skips the routed blocks.  arXiv:2510.21986
"""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.guidance_lever import Guiding
from fulcrum.training.flow.fillers import PathDropGuide


class PathDropGuidance(Guiding):
    name = "path_drop_guidance"
    filler = PathDropGuide
    path = "short"
    card = Card(
        says="draws with a weak pass that skips the routed blocks: guidance for little more than the price of no guidance",
        warns="the short path learns from the few samples whose path was dropped: a short run teaches it little",
    )
