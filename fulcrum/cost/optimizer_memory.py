"""Bytes that a parameter needs in training, from the run's description alone. No torch in here."""

from fulcrum.spec.run import RunSpec

SIZE = {"fp32": 4, "bf16": 2}
REMEMBERED = 2  # of a rule that does not say: two moments, as Adam's


def bytes_per_parameter(run: RunSpec) -> int:
    """Weight, gradient, optimizer state and averaged copy. Activations, buffers of a step and frozen networks are not
    counted: relative to a whole training step a saving is smaller, the more so the larger the batch.

    Weights and gradients are fp32 whatever `precision.storage` says: see optim.storage.
    """
    state = getattr(run.optim.rule, "remembers", REMEMBERED) * SIZE[run.precision.optimizer]
    return SIZE["fp32"] + SIZE["fp32"] + state + (0 if run.average.kind == "last_weights" else SIZE["fp32"])
