"""Every rule is whole: its facts stand, its id is its file's name, its lever exists, and the page
lists it."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from fulcrum.advice.rule import EFFORT, SEVERITIES, AuditRule
from fulcrum.advice.rules import BEGIN, BY_ID, END, LOOKS, RULES, looks_at, rule_table
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.phrase import read_lever

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "fulcrum/advice"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_says_all_that_is_asked_of_it(rule):
    assert rule.why and rule.size and rule.fix
    assert rule.severity in SEVERITIES and rule.effort in EFFORT and 0 < rule.gain <= 1
    assert looks_at(rule), "it looks at nothing"
    assert not rule.lever or read_lever(rule.lever, CATALOG)
    assert type(rule).__module__ == f"fulcrum.advice.rules_{rule.family}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_guessed_gain_is_small(rule):
    """docs/decisions/0042: otherwise a guess stands above what was measured; `boolean-as-text`
    stood above real errors."""
    guessed = any(
        words in rule.size
        for words in ("no number published", "no published number", "no clean number")
    )
    assert not guessed or rule.gain <= (0.2 if rule.severity == "error" else 0.1)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_another_severity_than_the_tables_is_said(rule):
    """`setting-read-by-nobody` was an error in the table and a warning where it was shown."""
    source = inspect.getsource(type(rule))
    methods = re.sub(r"^    severity = .*$", "", source, flags=re.M)
    own = set(re.findall(r"severity=|\"(?:note|warning|error)\"", methods))
    own.discard(f'"{rule.severity}"')
    own |= set(getattr(rule, "fused", ()))  # kernels that make a note of it, for all such rules
    assert bool(rule.also) == bool(own), own


def test_every_rule_is_listed():
    """A rule is a class with an id; those of the files `rules_*.py` are all in the table."""
    modules = [import_module(f"fulcrum.advice.{path.stem}") for path in FOLDER.glob("rules_*.py")]
    classes = {
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, AuditRule) and "id" in vars(one)
    }
    assert {type(rule) for rule in RULES} == classes and len(BY_ID) == len(RULES)


def test_every_way_to_look_is_a_method_of_a_rule():
    assert set(LOOKS) == {name for name in vars(AuditRule) if name.startswith("in_")}


def test_the_page_has_the_table_of_today():
    page = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0].strip() == rule_table(), (
        "write it anew: fulcrum audit --rules"
    )
