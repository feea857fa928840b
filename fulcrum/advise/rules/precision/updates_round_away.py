"""Rule: updates that are smaller than what the stored weights can hold."""

import numpy as np
from numpy.typing import NDArray

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.model_folder import TRAINED, ModelFolder
from fulcrum.advise.subjects.step_trace import StepTrace
from fulcrum.advise.subjects.stored_tensors import StoredTensors

BITS = {"BF16": 8, "F16": 11}  # significant ones
ENOUGH = 0.2  # share of lost updates that is worth a word


class UpdatesRoundAway(AuditRule):
    id = "updates-round-away"
    family = "precision"
    severity = "error"
    also = "note of parts that are frozen as a rule: text encoders, autoencoders"
    gain = 0.2
    why = (
        "Adam moves a weight by about the learning rate; where that is less than half the distance to the next bf16 "
        "number, the weight never moves"
    )
    size = "the share of updates that round to nothing is told with the fault"
    source = "arithmetic on the sampled values"
    lever = "bf16_storage"
    fix = "keep an fp32 copy of the weights for the optimizer, or round at random"

    def in_tensors(self, tensors: StoredTensors) -> Sightings:
        if tensors.rate is None:
            return
        parts = [(one, tensors.sample(one)) for one in tensors.tensors if one.format in BITS]
        shares = [lost_share(values, tensors.rate, BITS[one.format]) for one, values in parts if len(values)]
        counts = [one.numbers for one, values in parts if len(values)]
        share = float(np.average(shares, weights=counts)) if counts else 0.0
        if share > ENOUGH:
            worst = max(zip(shares, parts, strict=False), key=lambda pair: pair[0])
            yield Sighting(
                worst[1][0].name,
                f"at a learning rate of {tensors.rate:g}, {share:.0%} of the updates round to nothing "
                f"({worst[0]:.0%} in this tensor)",
            )

    def in_folder(self, folder: ModelFolder) -> Sightings:
        for part in folder.parts:
            for one in self.in_tensors(part.tensors):
                place = f"{part.name}: {one.place}" if part.name else one.place
                if part.name in TRAINED:
                    yield one._replace(place=place)
                else:
                    seen = f"{one.seen}; it matters only if the {part.name} is trained too"
                    yield one._replace(place=place, seen=seen, severity="note")

    def in_step(self, step: StepTrace) -> Sightings:
        if step.lost_updates > ENOUGH:
            yield Sighting(
                "optimizer", f"at the optimizer's learning rate {step.lost_updates:.0%} of the updates round to nothing"
            )


def lost_share(values: NDArray[np.float32], rate: float, bits: int) -> float:
    """Of these weights, those that an update of `rate` leaves where they are: it is below half their spacing."""
    spacing = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(values), 1e-30))) + 1 - bits)
    return float(np.mean(rate < spacing / 2)) if len(values) else 0.0
