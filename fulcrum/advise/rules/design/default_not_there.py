"""Rule: a configuration that is named by default does not exist."""

from pathlib import Path

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_family import INHERITS
from fulcrum.advise.subjects.config_file import SUFFIXES, ConfigFile
from fulcrum.advise.subjects.python_script import Script


class DefaultNotThere(AuditRule):
    id = "default-not-there"
    family = "design"
    severity = "error"
    gain = 1.0
    why = "the first command that a reader tries fails"
    size = "the training cannot run as it is written"
    source = "docs/published.md, A13"
    published = "A13"
    fix = "name a file that exists"

    def in_script(self, script: Script) -> Sightings:
        for option in script.options:
            value = option.default
            if (
                isinstance(value, str)
                and value.lower().endswith(SUFFIXES)
                and "config" in option.name
                and not _exists(script.path, value)
            ):
                yield Sighting(
                    script.at(option.node), f"--{option.name} is {value!r} by default, and there is no such file"
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for field in INHERITS:
            given = config.plain.get(field)
            for one in given if isinstance(given, list) else [given]:
                missing = _missing(config.path, field, one)
                if missing:
                    line = next((entry.line for entry in config.entries if entry.path.startswith(field)), 1)
                    yield Sighting(str(line), f"{field} names '{missing}', and there is no such file")


def _missing(home: Path, field: str, one: object) -> str:
    """Hydra writes `- group: name` for group/name.yaml and `- name` for name.yaml; others write a path."""
    if isinstance(one, dict) and field == "defaults" and len(one) == 1:
        group, name = next(iter(one.items()))
        group = str(group).removeprefix("override ").removeprefix("optional ").partition("@")[0].lstrip("/")
        if not isinstance(name, str) or name in ("null", "_self_") or "${" in name or not (home.parent / group).is_dir():
            return ""  # the group may come from a package
        return "" if _exists(home, f"{group}/{name}") else f"{group}/{name}"
    if not isinstance(one, str) or one == "_self_" or "${" in one or "@" in one:
        return ""
    is_path = one.lower().endswith(SUFFIXES) or field == "defaults"
    return one if is_path and not _exists(home, one) else ""


def _exists(home: Path, name: str) -> bool:
    """Beside it or above it; `/base` is a file of the root in Hydra's defaults, and elsewhere one of the whole disk."""
    places = (home.parent, *home.parent.parents[:3])
    names = (name, name.lstrip("/"))
    return any((place / f"{one}{suffix}").is_file() for one in names for place in places for suffix in ("", *SUFFIXES))
