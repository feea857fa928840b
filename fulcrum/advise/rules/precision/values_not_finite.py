"""Rule: a checkpoint holds numbers that are not finite."""

import numpy as np

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.stored_tensors import StoredTensors


class ValuesNotFinite(AuditRule):
    id = "values-not-finite"
    family = "precision"
    severity = "error"
    gain = 1.0
    effort = "rework"
    why = "one NaN in a weight makes every output NaN"
    size = "the checkpoint draws nothing"
    source = "arithmetic"
    fix = "go back to the checkpoint before; stop at the first loss or gradient that is not finite, before the optimizer"

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        for tensor in tensors.tensors:
            values = tensors.sample(tensor)
            bad = int(np.sum(~np.isfinite(values)))
            if bad:
                yield Sighting(tensor.name, f"{bad:,} of {len(values):,} sampled values are not finite")
