"""Bytes on disk: what the cache of a run will weigh, and its checkpoints. No torch in here."""

from fulcrum.spec.flops import SIZE, parameters, remembered
from fulcrum.spec.memory import picture_numbers, read_teachers
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases

HALF = 2  # bytes of a number in the cache of texts and teacher tokens
CHECKPOINTS = 2  # kept at a time; the newest is written before the oldest goes


def cache_bytes(run: RunSpec, text: float, pictures: int) -> dict[str, float]:
    """By entry, for so many pictures with one caption each; sizes that a stage changes have entries of their own."""
    entries: dict[str, float] = {}
    for phase in phases(run):
        one, size = phase.run, f"{phase.run.data.size} px"
        bytes_each = 1 if one.encode.codec.stride == 1 or one.encode.codec.trained else SIZE["fp32"]
        numbers = 3 * one.data.size**2 if one.encode.codec.trained else picture_numbers(one)
        entries[f"{'pixels' if bytes_each == 1 else 'latents'} at {size}"] = pictures * numbers * bytes_each
        entries["texts"] = pictures * text * one.encode.text.width * HALF
        for teacher in read_teachers(one, phase.start / run.budget.images):
            entries[f"tokens of {teacher.name} at {size}"] = pictures * one.tokens * teacher.width * HALF
    return entries


def checkpoint_bytes(run: RunSpec) -> float:
    """Of one checkpoint: weights, what the optimizer remembers, and the average."""
    average = 0 if run.average.kind == "last_weights" else SIZE["fp32"]
    return parameters(run) * (SIZE["fp32"] + remembered(run) + average)
