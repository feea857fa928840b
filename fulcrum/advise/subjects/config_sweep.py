"""A sweep in one configuration, as Hydra writes it: what differs between its jobs, and what a value depends on."""

import re

from fulcrum.advise.subjects.config_file import ConfigFile, Entry

PARAMETERS = "hydra.sweeper.params."
NAME = re.compile(r"\$\{([^${}]*)\}")
MANY = re.compile(r"^(choice|range|interval|glob|shuffle)\(")
NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|\"[^\"]*\"|'[^']*'")


def swept_names(config: ConfigFile) -> list[str]:
    """Names that a sweep gives more than one value."""
    return [
        entry.path.removeprefix(PARAMETERS).lstrip("+")
        for entry in config.entries
        if entry.path.startswith(PARAMETERS) and _is_many(entry)
    ]


def _is_many(entry: Entry) -> bool:
    if isinstance(entry.value, list):
        return len(entry.value) > 1
    return bool(MANY.match(entry.text)) or "," in NESTED.sub("", entry.text)  # a list in brackets is one value


def names_in(config: ConfigFile, entry: Entry) -> set[str] | None:
    """Names that a path is made of, followed through other values.

    None where it may be another for each job in a way that is not known: a resolver (`${now:...}`, `${hydra:...}`), a
    relative path, which Hydra may read within the job's own folder, or what is no path at all.
    """
    if not isinstance(entry.value, str):
        return None
    kept = config.first(r"^hydra\.job\.chdir$")
    if not re.match(r"/|\w+://|\$\{|[a-z]:[\\/]|~", entry.text) and not (kept is not None and kept.off):
        return None
    known = {one.path: one.value for one in config.entries}
    names, waiting = set[str](), [entry.value]
    while waiting:
        for name in NAME.findall(waiting.pop()):
            name = name.strip().lower().replace("-", "_")
            if not re.fullmatch(r"[\w.]+", name) or name.startswith((".", "hydra.", "oc.")):
                return None
            if name not in names:
                names.add(name)
                waiting += [known[name]] if isinstance(known.get(name), str) else []
    return names
