"""What PRX Part 2 published: the scopes of its tables, and a claim from one of them."""

from typing import Any

from fulcrum.levers.base import Claim

LATENTS = "256 px latents, 1.2 B parameters, 100k steps"
FEW_TOKENS = "256 px latents, 256 tokens, 100k steps"
MANY_TOKENS = "1024 px pixels, 1,024 tokens, 100k steps"


def claim(metric: str, change: float, scope: str = LATENTS, **facts: Any) -> Claim:
    recipe = "prx_pixels_1024" if scope == MANY_TOKENS else "prx_256"
    return Claim(metric=metric, change=change, scope=scope, source="PRX Part 2", recipe=recipe, **facts)
