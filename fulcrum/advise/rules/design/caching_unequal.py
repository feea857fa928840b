"""Rule: one arm encodes while it trains, the others read from a cache."""

import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import ConfigFamily

WORDS = re.compile(r"cache|precomput|online|on_the_fly|preencod|latents_from")


class CachingUnequal(AuditRule):
    id = "caching-unequal"
    family = "design"
    gain = 0.3
    effort = "edit"
    why = "an arm that encodes text or pictures in every step is slower for that, whatever its lever does"
    size = "the published FLUX.2 arm has 1.79 batches a second against 3.95, by its encoding"
    source = "docs/published.md, A11"
    published = "A11"
    fix = "cache for all arms or for none; tell throughput with encoding counted"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            for change in arm.changes:
                if WORDS.search(change.path) and not isinstance(change.after, str) and not isinstance(change.before, str):
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm encodes otherwise than the baseline: {change}",
                    )
