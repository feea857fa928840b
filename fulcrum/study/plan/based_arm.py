"""Arms of a plan that are held against another arm instead of the baseline: levers added to it, or in its place."""

from typing import Annotated

from pydantic import Field

from fulcrum.spec.record import Record


class OwnBaseArm(Record):
    """Levers that need others: held against another arm of the study, the base that they are added to."""

    add: Annotated[str, Field(min_length=1)]
    to: Annotated[str, Field(min_length=1)]  # levers on the baseline, or the name of such an arm; the study has it too

    @property
    def name(self) -> str:
        return f"{self.add} on {self.to}"

    @property
    def base(self) -> str:
        return self.to


class InsteadArm(Record):
    """A lever in the place of another, or with other settings: held against the arm that has the other."""

    add: Annotated[str, Field(min_length=1)]
    instead_of: Annotated[str, Field(min_length=1)]  # levers on the baseline; the study has that arm too

    @property
    def name(self) -> str:
        return f"{self.add} instead of {self.instead_of}"

    @property
    def base(self) -> str:
        return self.instead_of


BasedArm = OwnBaseArm | InsteadArm  # held against another arm, not against the baseline
