"""What was seen of one step of a user's module: in which number formats its sensitive operations really ran."""

from typing import Literal, NamedTuple

Kind = Literal["norm", "softmax", "rotary", "time", "loss"]
LOW = ("bf16", "fp16", "fp8")


class RanOperation(NamedTuple):
    """A sensitive operation, with the formats of what it was given, and where it was called."""

    kind: Kind
    operation: str  # as torch names it: native_layer_norm
    formats: str  # of its floating inputs: "bf16", "bf16 and fp32"
    place: str  # module path and line
    times: int = 1

    @property
    def low(self) -> bool:
        """Did it compute in low precision? Mixed inputs are promoted, so the widest decides."""
        return all(one in LOW for one in self.formats.split(" and "))


class StepTrace(NamedTuple):
    operations: list[RanOperation]
    trained: dict[str, str]  # parameter -> format it is stored in
    optimizer_state: dict[str, str]  # moment -> format
    lost_updates: float  # share of updates that would round to nothing; 0 where nothing is stored low or no rate is known
    ran: int  # operations that ran in all

    def of(self, kind: Kind) -> list[RanOperation]:
        return [one for one in self.operations if one.kind == kind]
