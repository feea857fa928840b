"""Agreement: before anything is trained the processes of a run tell each other what they are about to do."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from fulcrum.dist.processes.start import Ranks
from fulcrum.files.folders import Mark, leave_mark, unseen
from fulcrum.spec.errors import BadInput

ROOT = Path(str(files("fulcrum")))  # the package, wherever this file is in it
PACKAGES = ("fulcrum-lab", "torch", "numpy", "safetensors")
NAMED = 6  # differences that one message tells
HINT = "start all processes of a run with the same words, the same code and the same folder; nothing was trained"


def require_agreement(ranks: Ranks, about: str, facts: Mapping[str, Any]) -> None:
    """Every rank tells its facts; where one differs it is named, with what was expected and what it has, on all ranks."""
    if ranks.size == 1:
        return
    text = json.dumps({"host": platform.node(), "facts": facts}, sort_keys=True, default=str)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    digests = ranks.told(f"{about}, its hash", digest)
    if len(set(digests)) == 1:
        return
    reports = [json.loads(report) for report in ranks.told(about, text)]
    usual = Counter(digests).most_common(1)[0][0]  # of equal counts the first counted: the lowest rank's
    model = digests.index(usual)
    words = [
        f"rank {rank} on {report['host']}: {_differences(reports[model]['facts'], report['facts'])}"
        for rank, report in enumerate(reports)
        if digests[rank] != usual
    ]
    more = f"; and {len(words) - NAMED} ranks more" if len(words) > NAMED else ""
    raise BadInput(f"the processes of the run do not agree ({about}): {'; '.join(words[:NAMED])}{more}", HINT)


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    names = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    each = [f"{name} expected {_shown(expected.get(name))}, found {_shown(found.get(name))}" for name in names]
    return ", ".join(each[:NAMED]) + (f", and {len(each) - NAMED} more" if len(each) > NAMED else "")


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def require_shared(ranks: Ranks, folder: Path) -> None:
    """Every rank leaves a mark in the folder and looks for all: a folder that is only called the same is named."""
    if ranks.size == 1:
        return
    mark = leave_mark(folder)
    try:
        marks = [Mark(*json.loads(one)) for one in ranks.told("the marks in the folder of runs", json.dumps(mark))]
        answers = ranks.told("the marks that were seen", json.dumps([platform.node(), unseen(folder, marks)]))
    finally:
        mark.remove(folder)
    blind = [(rank, *json.loads(one)) for rank, one in enumerate(answers)]
    words = [f"rank {rank} on {host} does not see what {_ranks(missing)} wrote" for rank, host, missing in blind if missing]
    if words:
        raise BadInput(
            f"{folder} is not one folder for all processes of the run: {'; '.join(words[:NAMED])}",
            "give a folder with --out that all machines share; nothing was trained",
        )


def _ranks(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED])) + (" and more" if len(numbers) > NAMED else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"


@cache
def code_hash() -> str:
    """Of every Python file of the package: two nodes may have two checkouts."""
    digest = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Of Python and of what computes and stores."""
    numbers = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "not installed"
    return numbers
