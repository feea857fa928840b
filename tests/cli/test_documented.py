"""Every command that the docs show exists, with every option; phrases can be read, plans and pages
are there."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from fulcrum.cli import app
from fulcrum.cli.doctor import OPTIONAL
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from tools.pages.command_pages import every_command

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "examples/*/README.md")
PAGES = [page for place in PLACES for page in sorted(ROOT.glob(place))]
COMMANDS = every_command(app)
GROUPS = {name.split()[0] for name in COMMANDS if " " in name}
SPARK = CATALOG.recipes["spark"]().plain()
EVERYWHERE = {"--help", "--version", "--install-completion", "--show-completion"}
# what a page leaves to the reader
LEFT_OUT = re.compile(r"\.\.\.|…|\bCOMMAND\b|\[OPTIONS\]|\$[A-Z]")


def shown(text):
    """Commands of the text, each with whether it stands in a block, where it is to be typed as it
    is."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    # \` is no code
    inline = re.findall(
        r"(?<!\\)`([^`\n]+)(?<!\\)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    )
    for line, in_block in [*((line, True) for line in lines), *((line, False) for line in inline)]:
        words = re.sub(r"^\$ |^([A-Z_]+=\S+ )+", "", line.strip())
        found = re.match(r"(?:(?:torchrun|python3?)\b.*? -m )?fulcrum (.*)", words)
        if found:
            yield found.group(1), in_block


def problem(line, whole):
    """What is wrong with a command after the word fulcrum, or None."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        return str(error)
    name = (
        next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), None)
        if words
        else None
    )
    if name is None:
        known = words and (
            words[0] in EVERYWHERE
            or words[0] in GROUPS
            and len(words) == 1
            or LEFT_OUT.search(words[0])
        )
        return None if known else "no such command"
    command, rest = COMMANDS[name], words[len(name.split()) :]
    options = {
        option for one in command.params for option in (*one.opts, *one.secondary_opts)
    } | EVERYWHERE
    unknown = [
        word for word in rest if re.match(r"--\w", word) and word.partition("=")[0] not in options
    ]
    if unknown:
        return f"no option {unknown[0]}"
    if not whole or LEFT_OUT.search(line) or EVERYWHERE & set(rest):
        return None
    try:
        given = command.make_context(name, list(rest)).params
        if given.get("phrase") and _reads_nothing(given):
            parse(given["phrase"], CATALOG)
        lost = [setting for setting in given.get("settings") or () if not _slot(setting)]
        if lost:
            return f"no slot {lost[0]}"
        plan = str(given.get("plan", ""))
        if plan.startswith("examples/") and not (ROOT / plan).is_file():
            return f"no plan {plan}"
    except BadInput as error:
        return error.message
    except Exception as error:  # of the parser: a word too many, a value of the wrong kind
        return error.format_message() if hasattr(error, "format_message") else repr(error)
    return None


def _slot(setting):
    """Is it a slot of a run, or below one that holds a filler?"""
    part, *below = setting.partition("=")[0].split(".")
    fields = SPARK.get(part)
    return fields is not None and (
        not below or not isinstance(fields, dict) or "kind" in fields or below[0] in fields
    )


def _reads_nothing(given):
    """A phrase that names no file, folder or hub, and no word that is the reader's own."""
    return (
        not given["levers"]
        and "path=" not in given["phrase"]
        and given["phrase"] != given["phrase"].upper()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page):
    faults = {
        line: why
        for line, whole in shown(page.read_text(encoding="utf-8"))
        if (why := problem(line, whole))
    }
    assert not faults


def test_the_search_finds_commands():
    found = [line for page in PAGES for line, _ in shown(page.read_text(encoding="utf-8"))]
    assert len(found) > 150 and {
        name for name in COMMANDS if any(line.startswith(name) for line in found)
    } == set(COMMANDS)


@pytest.mark.parametrize(
    ("line", "whole", "why"),
    [
        ("train spark --sed 1", False, "no option --sed"),
        ("trian spark", False, "no such command"),
        ("train 'spark + tred'", True, "no lever is called 'tred'"),
        ("train", True, "Missing argument"),
        ("runs show KEY more", True, "unexpected extra argument"),
        ("train spark --images many", True, "valid integer"),
        ("train spark --set optim.rate=1", True, "no slot optim.rate"),
        ("study run examples/gone.toml", True, "no plan"),
        ("train ...", True, None),
        ("train", False, None),
        ('sample KEY "a star." # a comment', True, None),
        ("runs", False, None),
    ],
)
def test_a_wrong_command_is_found(line, whole, why):
    found = problem(line, whole)
    assert found is None if why is None else why in found


# a line of its own: a sentence may begin with "make"
COMMAND = r"^make ([a-z-]+)(?: [A-Z_]+=\S+)*(?: +#.*)?$"


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = {*re.findall(r"`make ([a-z-]+)`", text), *re.findall(COMMAND, text, re.M)}
        assert named <= targets, f"{page.name}: {named - targets}"


def test_every_extra_is_in_the_table_and_doctor_knows_what_commands_ask_for():
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "extras.md").read_text(), re.M)
    assert sorted(table) == sorted(extras)
    assert set(OPTIONAL) == extras - {"dev", "docs", "fuzz"}
