"""Which embedded teacher a lever learns from: the default, which was told nothing of the world, or the supervised one."""

from fulcrum.networks.fillers import WORLD_TEACHERS, WorldTeacher
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec


def with_teacher(run: RunSpec, name: str) -> RunSpec:
    """The run with the embedded teacher of this name; any other name is that of a teacher which the run must have."""
    if name not in WORLD_TEACHERS or any(teacher.name == name for teacher in run.encode.teachers):
        return run
    teacher = WorldTeacher.model_validate({"name": name, "asset": WORLD_TEACHERS[name]})
    return put(run, f"encode.teachers.{name}", teacher)
