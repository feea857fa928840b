"""An audit as text, as an HTML page and as SARIF 2.1.0."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fulcrum.advice.audit import Audit
from fulcrum.advice.published import explained
from fulcrum.advice.rule import EFFORT, SEVERITIES, Fault
from fulcrum.advice.rules import BY_ID, NO_RULE
from fulcrum.files.atomic import write_atomic
from fulcrum.spec.errors import inert

# --------------------------------------------------------------------------------------------------
# An audit in words, for a terminal.


MOST_PLACES = 4  # of one rule that are told whole; the others are counted
LEGEND = "A1, A10 and the like number the faults that were found in the published PRX code"
EFFORTS = {
    "line": "a line",
    "edit": "some lines or settings",
    "rework": "new data or a new training",
}


def text(audit: Audit) -> str:
    return "\n".join(_lines(audit))


def headline(audit: Audit) -> str:
    """How many faults of each severity."""
    counts = Counter[str](fault.severity for fault in audit.faults)
    words = [
        f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}"
        for name in reversed(SEVERITIES)
        if counts[name]
    ]
    kinds = len(grouped(audit.faults))
    several = (
        f" in {len(audit.faults)} places; {kinds} kind{'s' if kinds > 1 else ''}"
        if kinds < len(audit.faults)
        else ""
    )
    return (", ".join(words) or "nothing found") + several


def grouped(faults: list[Fault]) -> list[list[Fault]]:
    """Faults of one rule together, in the order of the stack."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((fault.rule, fault.severity), []).append(fault)
    return list(groups.values())


def legend(audit: Audit) -> list[str]:
    """What the numbers mean that sizes and their sources cite."""
    return explained(text for fault in audit.faults for text in (fault.size, *fault.evidence))


def _lines(audit: Audit) -> Iterator[str]:
    yield f"{audit.target} ({audit.kind}: {audit.looked_at})"
    yield f"  {headline(audit)}" + (
        f", {len(audit.ignored)} ignored with a reason" if audit.ignored else ""
    )
    if audit.faults:
        yield ""
        yield "most expected gain for the least effort first"
    for number, group in enumerate(grouped(audit.faults), 1):
        first = group[0]
        yield ""
        yield f"{number}. {first.severity}: {first.rule} ({first.family})"
        for fault in group[:MOST_PLACES]:
            yield f"   {fault.place}: {fault.seen}"
        if len(group) > MOST_PLACES:
            yield f"   and {len(group) - MOST_PLACES} more places: --json has them all"
        yield f"   why   {first.why}"
        yield f"   size  {first.size}" + (f" ({first.evidence[0]})" if first.evidence else "")
        for more in first.evidence[1:]:
            yield f"         {more}"
        fixes = list(dict.fromkeys(fault.fix for fault in group))
        yield f"   fix   {fixes[0]}"
        for fix in fixes[1:MOST_PLACES]:
            yield f"         {fix}"
        if len(fixes) > MOST_PLACES:
            yield f"         and {len(fixes) - MOST_PLACES} more: --json has them all"
        yield f"   effort {EFFORTS[first.effort]}"
    if numbers := legend(audit):
        yield ""
        yield f"{LEGEND} (docs/published.md)"
        yield from (f"   {line}" for line in numbers)
    for rule, place, reason in audit.ignored:
        yield f"ignored: {rule} at {place}: {reason}"


# --------------------------------------------------------------------------------------------------
# An audit as one HTML page in the report's style: it opens offline, runs no script, and every value
# in it is text.


BADGES = {"error": "bad", "warning": "open", "note": "even"}  # of the report's style


def render(audit: Audit) -> str:
    environment = Environment(
        loader=PackageLoader("fulcrum.judge"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = resources.files("fulcrum.judge").joinpath("templates/style.css").read_text("utf-8")
    return environment.get_template("audit.jinja").render(
        audit=audit,
        groups=grouped(audit.faults),
        headline=headline(audit),
        legend=legend(audit),
        legend_words=LEGEND,
        style=Markup(style),
        badges=BADGES,
        efforts=EFFORTS,
    )


def write_page(audit: Audit, path: Path) -> None:
    write_atomic(path, inert(render(audit)))


# --------------------------------------------------------------------------------------------------
# An audit as SARIF 2.1.0, the form in which code hosts and editors take what a checker found.


SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
PACKAGE = "fulcrum-lab"
PAGE = Path(str(files("fulcrum"))).parent / "docs/audit.md"  # beside the package in a checkout
LINE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d*)")
# priority of a whole gain for the least effort
MOST = max(1.0 / effort for effort in EFFORT.values())


def sarif(audit: Audit) -> dict[str, Any]:
    """One run with its results, in the order of the stack; what a comment answers is there too, as
    suppressed."""
    used = dict.fromkeys(
        [*(fault.rule for fault in audit.faults), *(rule for rule, _, _ in audit.ignored)]
    )
    places = {rule: place for place, rule in enumerate(used)}
    results = [_result(fault, places[fault.rule], audit) for fault in audit.faults]
    results += [_suppressed(one, places[one[0]], audit) for one in audit.ignored]
    driver = {
        "name": "fulcrum audit",
        "version": version(PACKAGE),
        "rules": [_rule(name) for name in used],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def write_sarif(audit: Audit, path: Path) -> None:
    write_atomic(path, json.dumps(sarif(audit), indent=1) + "\n")


def _rule(name: str) -> dict[str, Any]:
    rule = BY_ID.get(name)
    if rule is None:  # what could not be read
        return {"id": name, "shortDescription": {"text": "what cannot be read cannot be audited"}}
    size = f"Expected size: {rule.size}" + (f" ({rule.source})" if rule.source else "")
    return {
        "id": name,
        **help_uri(name),
        "shortDescription": {"text": name.replace("-", " ")},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix}\n{size}"},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": [rule.family], "effort": rule.effort},
    }


def help_uri(rule: str) -> dict[str, str]:
    """Where the docs tell of a rule: on their site, where the package's metadata names one, else in
    the checkout. SARIF wants an absolute address; an installed package that names no site has none,
    and its help is the text alone."""
    named = [one.partition(",") for one in metadata(PACKAGE).get_all("Project-URL") or ()]
    site = next(
        (
            address.strip()
            for label, _, address in named
            if label.strip().lower() == "documentation"
        ),
        "",
    )
    if site:
        return {"helpUri": f"{site.rstrip('/')}/audit.html#{rule}"}
    return {"helpUri": f"{PAGE.as_uri()}#{rule}"} if PAGE.is_file() else {}


def _result(fault: Fault, index: int, audit: Audit) -> dict[str, Any]:
    return {
        "ruleId": fault.rule,
        "ruleIndex": index,
        "level": fault.severity,
        "rank": round(100.0 * fault.priority / MOST, 1),  # 100: the most gain for the least effort
        "message": {"text": f"{fault.seen}. Fix: {fault.fix}"},
        "locations": [_location(fault.place, audit)],
        "properties": {"why": fault.why, "size": fault.size, "evidence": list(fault.evidence)},
    }


def _suppressed(ignored: tuple[str, str, str], index: int, audit: Audit) -> dict[str, Any]:
    rule, place, reason = ignored
    return {
        "ruleId": rule,
        "ruleIndex": index,
        "level": BY_ID[rule].severity if rule in BY_ID and rule != NO_RULE else "none",
        "message": {"text": f"answered by a comment: {reason}"},
        "locations": [_location(place, audit)],
        "suppressions": [{"kind": "inSource", "justification": reason}],
    }


def _location(place: str, audit: Audit) -> dict[str, Any]:
    """A file and line where the place is one; else the target itself, and the tensor, slot, sample
    or arm by its name."""
    match, target = LINE.fullmatch(place), Path(audit.target)
    if match:
        file = Path(match["file"])
        # places of a project lie below it
        file = file if file.is_absolute() or not target.is_dir() else target / file
        return {
            "physicalLocation": {
                "artifactLocation": {"uri": _uri(file)},
                "region": {"startLine": int(match["line"])},
            }
        }
    name = place.removeprefix(f"{audit.target}: ")
    named: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name}]}
    if target.exists():
        named["physicalLocation"] = {"artifactLocation": {"uri": _uri(target)}}
    return named


def _uri(path: Path) -> str:
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
