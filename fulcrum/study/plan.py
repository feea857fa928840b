"""The plan of a study: everything that is fixed before the first cell runs, and its hash."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from fulcrum.measure.card import METRICS
from fulcrum.spec.edit import digest, explain
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.record import Count, Fraction, Positive, Record


class Plan(Record):
    title: str
    baseline: str                                            # a phrase
    arms: tuple[str, ...] = Field(min_length=1)              # levers to add to the baseline, one phrase part each
    seeds: tuple[int, ...] = Field(min_length=2)
    images: Count | None = None                              # budget; None = the recipe's own
    settings: tuple[str, ...] = ()                           # path=value, the same for every arm
    samples: Annotated[int, Field(ge=64, le=1_000_000)] = 512    # pictures drawn for each evaluation
    primary: str = "attribute_accuracy"
    smallest_effect: Positive = 0.02                         # of interest, on the primary metric, in its unit
    smallest_relative: Positive = 0.05                       # of interest on the others, as a share of the baseline
    alpha: Fraction = 0.05
    threads: Count = 1                                       # per cell; cells run side by side
    compile: bool = True
    learning_rates: Literal["shared"] = "shared"             # every arm uses the recipe's rate; nothing was tuned per arm

    @field_validator("arms")
    @classmethod
    def _once(cls, arms: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(arms)) < len(arms) or "baseline" in arms:
            raise ValueError(f"an arm is named twice in {list(arms)}; each arm is one comparison with the baseline")
        return arms

    @field_validator("seeds")
    @classmethod
    def _paired(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"a seed is named twice in {list(seeds)}; each seed is one pair")
        return seeds

    @field_validator("primary")
    @classmethod
    def _known(cls, primary: str) -> str:
        if primary not in METRICS:
            raise ValueError(f"no metric is called '{primary}'; {nearest(primary, METRICS)}")
        return primary

    @property
    def hash(self) -> str:
        return digest(self)[:16]

    def phrases(self) -> dict[str, str]:
        """Arm name -> phrase, the baseline first."""
        return {"baseline": self.baseline, **{arm: f"{self.baseline} + {arm}" for arm in self.arms}}


def from_plain(found: dict[str, Any]) -> Plan:
    """A plan from plain data; lists become tuples, everything else must fit as it is."""
    return Plan.model_validate({name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def load(path: Path) -> Plan:
    """A plan from a TOML file; an unknown name or a wrong type is an error that says so."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"cannot read the plan {path}: {error.strerror}", "an example: examples/quick.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}", "an example: examples/quick.toml") from None
    unknown = [name for name in found if name not in Plan.model_fields]
    if unknown:
        raise BadInput(f"{path}: a plan has no '{unknown[0]}'", nearest(unknown[0], Plan.model_fields))
    try:
        return from_plain(found)
    except ValidationError as error:
        raise BadInput(f"{path}: {explain(error)}", "an example: examples/quick.toml") from None
