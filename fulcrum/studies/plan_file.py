"""A plan as a person writes it, in TOML or in Python: read into a `Plan`, with words for whatever
does not fit."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from fulcrum.files.user_code import parse_toml
from fulcrum.judge.card import METRICS
from fulcrum.judge.design import Scale
from fulcrum.judge.looks import SeedRounds
from fulcrum.spec.edit import explain, quoted
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.record import Record
from fulcrum.studies.plan import BasedArm, InsteadArm, OwnBaseArm, Plan, StopEarly, Sweep

EXAMPLE = "an example: examples/quick.toml"
NOUNS = {
    Scale: "a scale",
    OwnBaseArm: "an arm with a base",
    InsteadArm: "an arm instead of another",
    Sweep: "`learning_rates`",
    StopEarly: "`stop_early`",
}
SHIPPED = ("quick",)  # plans of the package, known by their names alone
DEFAULT_PRIMARY = Plan.model_fields["primary"].default


def from_plain(fields: dict[str, Any]) -> Plan:
    """A plan from plain data; lists become tuples and tables records, everything else must fit as
    it is."""
    plain = {name: _tuples(value) for name, value in fields.items()}
    if isinstance(plain.get("seeds"), dict):
        plain.update(_in_rounds(plain))
    for name, value in plain.items():
        listed = (
            name in Plan.model_fields and get_origin(Plan.model_fields[name].annotation) is tuple
        )
        if listed and not isinstance(value, tuple):
            form = (
                "[0, 1, 2, 3, 4, 5]: seeds are named, not counted"
                if name == "seeds"
                else f"[{quoted(value)}]"
            )
            raise BadInput(
                f"`{name}` is a list, found {quoted(value)}",
                f"write it in brackets: {name} = {form}",
            )
    for one in plain.get("scales", ()):
        if not isinstance(one, dict | Scale):
            raise BadInput(
                f"a scale cannot be {quoted(one)}",
                'write: scales = [{ name = "a", settings = ["model.depth=4"] }, ...]',
            )
    for one in plain.get("arms", ()):
        if not isinstance(one, str | dict | BasedArm):
            raise BadInput(
                f"an arm cannot be {quoted(one)}",
                'write: arms = ["muon", { add = "end_to_end_codec", to = "repa" }]',
            )
    if isinstance(plain.get("arms"), tuple):
        plain["arms"] = tuple(_record(_based(one), one) for one in plain["arms"])
    if isinstance(plain.get("scales"), tuple):
        plain["scales"] = tuple(_record(Scale, one) for one in plain["scales"])
    for name, kind, form in (
        ("learning_rates", Sweep, '"shared" or { sweep = [0.5, 1, 2] }'),
        ("stop_early", StopEarly, "{ successive = 3, level = 0.99 }"),
    ):
        value = plain.get(name, Plan.model_fields[name].default)
        if not isinstance(value, dict | kind) and value != Plan.model_fields[name].default:
            raise BadInput(f"`{name}` cannot be {quoted(value)}", f"write: {name} = {form}")
        plain[name] = _record(kind, value)
    return Plan.model_validate(plain)


def _based(arm: Any) -> type[BasedArm]:
    """Which kind of arm a table describes."""
    return InsteadArm if isinstance(arm, dict) and "instead_of" in arm else OwnBaseArm


def _in_rounds(plain: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The seeds and looks that a table of seeds stands for."""
    form = "write: seeds = { first = 8, step = 4, most = 16 }"
    if plain.get("looks"):
        raise BadInput(
            "seeds as a table say at which pairs the plan looks, and `looks` says it again",
            "leave `looks` out",
        )
    missing = [name for name in SeedRounds.model_fields if name not in plain["seeds"]]
    unknown = [name for name in plain["seeds"] if name not in SeedRounds.model_fields]
    if missing or unknown:
        raise BadInput(
            f"seeds as a table {f'lack {missing[0]!r}' if missing else f'have no {unknown[0]!r}'}",
            form,
        )
    try:
        rounds = SeedRounds.model_validate(plain["seeds"])
    except ValidationError as error:
        raise BadInput(f"seeds: {explain(error)}", form) from None
    if rounds.first >= rounds.most:
        raise BadInput(
            f"the first look, at {rounds.first} pairs, is not before the last, at {rounds.most}",
            form,
        )
    return {"seeds": tuple(range(rounds.most)), "looks": rounds.looks}


def _record(kind: type[Record], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    unknown = [name for name in value if name not in kind.model_fields]
    if unknown:
        arm = kind in (OwnBaseArm, InsteadArm)
        known = [*OwnBaseArm.model_fields, "instead_of"] if arm else list(kind.model_fields)
        raise BadInput(
            f"{NOUNS.get(kind, 'a table')} has no '{unknown[0]}'", nearest(unknown[0], known)
        )
    return kind.model_validate(value)


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return (
        {name: _tuples(item) for name, item in value.items()} if isinstance(value, dict) else value
    )


def load(path: Path) -> Plan:
    """A plan from a TOML file, or a shipped one by its name; an unknown name or a wrong type is an
    error that says so."""
    shipped = str(path) in SHIPPED and not path.exists()  # a file of the user's own comes first
    try:
        file = files(__package__) / f"{path}.toml" if shipped else path
        text = file.read_text(encoding="utf-8-sig")  # some editors begin with a mark
        fields = parse_toml(text)
    except OSError as error:
        raise BadInput(f"cannot read the plan {path}: {error.strerror}", EXAMPLE) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8", "save it with the encoding UTF-8") from None
    except ValueError as error:
        raise BadInput(f"{path} is not TOML: {error}", EXAMPLE) from None
    return from_person(fields, str(path))


def from_person(fields: Mapping[str, Any], name: str) -> Plan:
    """A plan that a person wrote, in a file or in Python; errors begin with its name."""
    unknown = [str(field) for field in fields if field not in Plan.model_fields]
    if unknown:
        raise BadInput(
            f"{name}: a plan has no '{unknown[0]}'", nearest(unknown[0], Plan.model_fields)
        )
    primary = METRICS.get(str(fields.get("primary", DEFAULT_PRIMARY)))
    # the usual margin, two in a hundred, is meant for these
    shares = primary is None or primary.unit == "share"
    margin = {} if shares else {"smallest_effect": None}
    try:
        return from_plain({**margin, **fields})
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}", error.hint) from None
    except ValidationError as error:
        raise BadInput(f"{name}: {explain(error)}", _example(fields)) from None


def _example(fields: Mapping[str, Any]) -> str:
    """Where a plan that asks for what these fields ask for can be seen."""
    arms = fields.get("arms")
    shown_by = {
        "fraction": fields.get("design") == "fractional",
        "sequential": "looks" in fields or isinstance(fields.get("seeds"), dict),
        "scale": "scales" in fields,
        "interactions": "interactions" in fields,
        "early": "stop_early" in fields,
        "late": "trunk" in fields or "trunk_images" in fields,
        "own_base": isinstance(arms, list | tuple) and any(isinstance(arm, dict) for arm in arms),
        "stack": "stack" in fields or "learning_rates" in fields,
    }
    return EXAMPLE.replace(
        "quick", next((name for name, asked in shown_by.items() if asked), "quick")
    )
