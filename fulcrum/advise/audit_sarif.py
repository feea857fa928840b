"""An audit as SARIF 2.1.0, the form in which code hosts and editors take what a checker found."""

import json
import re
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fulcrum.advise.audit_target import Audit
from fulcrum.advise.fault import EFFORT, Fault
from fulcrum.advise.rule_judge import NO_RULE
from fulcrum.advise.rules.rule_list import BY_ID
from fulcrum.files.atomic import write_atomic

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
PACKAGE = "fulcrum-lab"
PAGE = Path(str(files("fulcrum"))).parent / "docs/audit.md"  # beside the package in a checkout
LINE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d*)")
MOST = max(1.0 / effort for effort in EFFORT.values())  # priority of a whole gain for the least effort


def sarif(audit: Audit) -> dict[str, Any]:
    """One run with its results, in the order of the stack; what a comment answers is there too, as suppressed."""
    used = dict.fromkeys([*(fault.rule for fault in audit.faults), *(rule for rule, _, _ in audit.ignored)])
    places = {rule: place for place, rule in enumerate(used)}
    results = [_result(fault, places[fault.rule], audit) for fault in audit.faults]
    results += [_suppressed(one, places[one[0]], audit) for one in audit.ignored]
    driver = {"name": "fulcrum audit", "version": version(PACKAGE), "rules": [_rule(name) for name in used]}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


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
    """Where the docs tell of a rule: on their site, where the package's metadata names one, else in the checkout. SARIF
    wants an absolute address; an installed package that names no site has none, and its help is the text alone."""
    named = [one.partition(",") for one in metadata(PACKAGE).get_all("Project-URL") or ()]
    site = next((address.strip() for label, _, address in named if label.strip().lower() == "documentation"), "")
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
    """A file and line where the place is one; else the target itself, and the tensor, slot, sample or arm by its name."""
    match, target = LINE.fullmatch(place), Path(audit.target)
    if match:
        file = Path(match["file"])
        file = file if file.is_absolute() or not target.is_dir() else target / file  # places of a project lie below it
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
