"""What a release says of itself in four places is one thing; what leaves the repository is
whole."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import fulcrum

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def disagreement(version, heading):
    """Why a version and the changelog's first heading do not belong together, or None."""
    told = re.fullmatch(r"## (\d+\.\d+\.\d+) \((in work|\d{4}-\d\d-\d\d)\)", heading)
    if told is None:
        return f"expected '## 1.2.3 (in work)' or a date in the brackets, found {heading!r}"
    if version.partition(".dev")[0] != told.group(1):
        return f"version {version}, changelog {told.group(1)}"
    if (".dev" in version) != (told.group(2) == "in work"):
        return (
            f"version {version} is {'not ' * ('.dev' not in version)}in work, the changelog says"
            f" {told.group(2)}"
        )
    return None


def test_the_changelog_and_the_version_agree():
    headings = re.findall(r"^## .*", CHANGES, re.M)
    assert disagreement(PROJECT["version"], headings[0]) is None


@pytest.mark.parametrize(
    ("version", "heading", "agree"),
    [
        ("1.0.0.dev0", "## 1.0.0 (in work)", True),
        ("1.0.0", "## 1.0.0 (2026-12-01)", True),
        ("1.0.0", "## 1.0.0 (in work)", False),
        ("1.0.0.dev0", "## 1.0.0 (2026-12-01)", False),
        ("1.0.1", "## 1.0.0 (2026-12-01)", False),
        ("1.0.0", "## Soon", False),
    ],
)
def test_a_version_that_does_not_agree_is_found(version, heading, agree):
    assert (disagreement(version, heading) is None) == agree


def test_the_citation_names_this_version_and_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors", "type"} <= set(citation)


def test_the_dockerfile_copies_what_is_there_and_what_is_let_through():
    let_through = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.M)
    copied = {
        word for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.M) for word in line.split()
    }
    assert copied == set(let_through) and all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_stage_of_the_dockerfile_builds_on_one_that_is_there(device):
    known = {"python:3.12-slim"}
    for base, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.M):
        assert base.replace("${DEVICE}", device) in known, (
            f"{name} is built on {base}, which comes later or never"
        )
        known.add(name)
    assert re.search(r"^ARG DEVICE=cpu$", DOCKERFILE.partition("FROM")[0], re.M), (
        "FROM sees only what stands before it"
    )
    extras = re.findall(r'"\.\[(\w+)\]"', DOCKERFILE)
    assert extras and set(extras) <= set(PROJECT["optional-dependencies"])


def test_the_dockerfile_is_written_as_an_engine_reads_it():
    """Known instructions, nothing after the last continued line's end, and command lines that are
    lists."""
    whole = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.M))
    instructions = [line.split(maxsplit=1) for line in whole.splitlines() if line.strip()]
    assert {word for word, _ in instructions} <= {
        *("ARG", "FROM", "RUN", "ENV", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD")
    }
    assert not re.search(r"\\[ \t]+$", DOCKERFILE, re.M), (
        "a space after the backslash ends the line"
    )
    for word, rest in instructions:
        if word in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(part, str) for part in json.loads(rest))
        if word == "RUN":
            assert subprocess.run(["sh", "-n", "-c", rest]).returncode == 0, rest
        if word == "ENV":
            assert all("=" in pair for pair in shlex.split(rest))
    names = [word for word, _ in instructions]
    assert names.index("USER") > max(
        number for number, word in enumerate(names) if word == "RUN"
    ), "installed as root"


def test_the_notes_promise_what_the_package_offers():
    notes = (
        (ROOT / "docs" / "release.md")
        .read_text(encoding="utf-8")
        .partition("promised until 2.0")[2]
        .partition(" of the package")[0]
    )
    assert set(re.findall(r"`(\w+)`", notes)) == set(fulcrum.__all__) - {"__version__"}


def test_both_names_of_the_command_lead_to_the_same():
    assert PROJECT["scripts"]["fulcrum"] == PROJECT["scripts"][PROJECT["name"]]
