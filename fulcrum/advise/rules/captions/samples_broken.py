"""Rule: samples of a data set that cannot be used."""

import shlex

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.caption_set import SHOWN, CaptionSet


class SamplesBroken(AuditRule):
    id = "samples-broken"
    family = "captions"
    gain = 0.02
    why = "a loader that skips them shrinks batches silently; one that does not stops in the middle of the night"
    size = "as many samples as are named"
    source = "docs/published.md, A19"
    fix = "mend or remove them, or let the import leave them out and count them: fulcrum data import --bad quarantine"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        if captions.broken:
            few = "; ".join(f"{name}: {why}" for name, why in captions.broken[:SHOWN])
            yield Sighting(
                captions.broken[0][0],
                f"{len(captions.broken):,} samples cannot be used: {few}",
                f"fulcrum doctor {shlex.quote(captions.path)} says what of the store is damaged: import the pictures again"
                if captions.stored
                else "mend or remove them, or leave them out, counted and named: "
                + captions.import_command("--bad", "quarantine"),
                None if captions.samples else "error",
            )
