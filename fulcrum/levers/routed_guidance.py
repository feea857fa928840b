"""Routed guidance: pictures move away from what the same prompt gives with the tokens routed as in training.

v = v_routed + w (v_full - v_routed),  both with the prompt, one mask for all steps.  arXiv:2501.04765
"""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.guidance_lever import Guiding
from fulcrum.training.flow.fillers import RoutedGuide


class RoutedGuidance(Guiding):
    name = "routed_guidance"
    filler = RoutedGuide
    path = "routed"
    card = Card(
        says="draws with the routed model as the weak one instead of the empty prompt; training is untouched",
        warns="the prompt itself is no longer amplified: this replaces classifier-free guidance, it does not add to it",
    )
