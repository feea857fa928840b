"""A person's own file that fails: the message names file, line and exception, and the rest goes on
working."""

import json

import pytest

from fulcrum.cli import main

TINY = [
    word
    for setting in (
        "model.width=32",
        "model.depth=4",
        "model.heads=2",
        "budget.batch=8",
        "data.source.count=64",
        "sample.steps=2",
    )
    for word in ("--set", setting)
]
GOOD = """from typing import ClassVar
from fulcrum.levers.base import Card, Claim, Lever
from fulcrum.spec import slots
from fulcrum.spec.edit import put

class Smooth(slots.TermFiller):
    kind: ClassVar[str] = "smooth"
    name: str = "smooth"
    weight: float = 0.1
    def build(self, ctx):
        from torch import nn
        class Rough(nn.Module):
            def forward(self, view):
                return view.x.flatten(1).mean(1)
        return Rough()

class Own(Lever):
    name: ClassVar[str] = "own"
    touches: ClassVar[tuple] = ("terms.smooth",)
    card: ClassVar[Card] = Card(says="smoother")
    def edit(self, run):
        return put(run, "terms.smooth", Smooth())
    def witness(self, built):
        return "smooth" in built.step.terms
"""


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    return end.value.code, printed.out, printed.err


@pytest.fixture
def write(tmp_path):
    def file(old="", new="", name="own.py"):
        assert old in GOOD
        text = GOOD.replace(old, new) if old else GOOD
        (tmp_path / name).write_text(text)
        return tmp_path / name, 1 + text[: text.find(new)].count("\n") + new.count("\n")

    return file


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("return view.x.flatten(1).mean(1)", "return view.nothing", "AttributeError"),
        ("        return Rough()", "        return 1 / 0", "ZeroDivisionError"),
        ('return put(run, "terms.smooth", Smooth())', "return run.nothing", "AttributeError"),
        (
            'return put(run, "terms.smooth", Smooth())',
            "return put(run, 'terms.x.y', 1)",
            "no slot is called",
        ),
        ('return "smooth" in built.step.terms', "return built.nothing", "AttributeError"),
        ("class Own(Lever):", "class Own(Lever:", "invalid syntax"),
        ('Card(says="smoother")', "Card(says=3)", "settings of Card are not right: says"),
        (
            'Card(says="smoother")',
            (
                'Card(says="x", claims=(Claim(metric="fid", change="much", scope="here",'
                ' source="me"),))'
            ),
            "settings of Claim are not right: change",
        ),
        ("class Own(Lever):", "class Own(Lever):\n    strength = 0.1", "require a type annotation"),
    ],
)
def test_an_error_names_file_line_and_exception(
    write, old, new, says, capsys, tmp_path, monkeypatch
):
    monkeypatch.delenv("FULCRUM_TRACEBACK", raising=False)
    path, line = write(old, new)
    code, _, error = fulcrum(
        capsys,
        "train",
        "spark + own",
        "--levers",
        path,
        "--images",
        8,
        "--out",
        tmp_path / "runs",
        *TINY,
        "--threads",
        1,
        "--quiet",
    )
    line -= "strength" in new  # said of the class, not of its line
    assert code == 2 and says in error and f"{path}, line {line}" in error, error
    assert "Traceback" not in error and "report" not in error and "errors.pydantic.dev" not in error


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("        return Rough()", "        return None", "gave NoneType, not a torch module"),
        (
            "return view.x.flatten(1).mean(1)",
            "return 3.0",
            "gave float, expected one number per image",
        ),
        ("    def build(self, ctx):", "    def bild(self, ctx):", "defines no `build`"),
        (
            '    def witness(self, built):\n        return "smooth" in built.step.terms\n',
            "",
            "defines no `witness`",
        ),
    ],
)
def test_what_is_missing_or_of_another_kind_is_said(write, old, new, says, capsys, tmp_path):
    code, _, error = fulcrum(
        capsys,
        "train",
        "spark + own",
        "--levers",
        write(old, new)[0],
        "--images",
        8,
        "--out",
        tmp_path / "runs",
        *TINY,
        "--threads",
        1,
        "--quiet",
    )
    assert code == 2 and says in error, error


def test_the_traceback_is_there_for_who_asks(write, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FULCRUM_TRACEBACK", "1")
    path, _ = write('return "smooth" in built.step.terms', "return built.nothing")
    code, _, error = fulcrum(
        capsys,
        "train",
        "spark + own",
        "--levers",
        path,
        "--images",
        8,
        "--out",
        tmp_path / "runs",
        *TINY,
        "--threads",
        1,
        "--quiet",
    )
    assert code == 2 and "Traceback" in error and "return built.nothing" in error


COST = "    def witness", "    def cost(self, run):\n        return {}\n    def witness"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('Card(says="smoother")', "Card(says=3)", "settings of Card"),
        (COST[0], COST[1].format("1 / 0"), "ZeroDivisionError"),
        (COST[0], COST[1].format("1.5"), "not a Cost"),
        ('return put(run, "terms.smooth", Smooth())', "return run.nothing", "AttributeError"),
    ],
)
def test_the_others_are_listed_beside_a_broken_lever(write, old, new, says, capsys):
    path, _ = write(old, new)
    code, out, error = fulcrum(capsys, "levers", "--levers", path, "--json")
    names = [card["name"] for card in json.loads(out)]
    assert (
        code == 2
        and "tread" in names
        and "own" not in names
        and says in error
        and str(path) in error
    )
    code, _, error = fulcrum(capsys, "levers", "show", "own", "--levers", path)
    assert code == 2 and says in error and str(path) in error
    assert fulcrum(capsys, "levers", "show", "tread", "--levers", path)[1].startswith("tread: ")


def test_a_good_file_is_listed(write, capsys):
    code, out, _ = fulcrum(capsys, "levers", "--levers", write()[0], "--json")
    assert code == 0 and "own" in [card["name"] for card in json.loads(out)]


def test_a_recipe_that_gives_no_run_is_refused(tmp_path, capsys):
    path = tmp_path / "own.py"
    path.write_text(
        "from fulcrum.spec.run import RunSpec\n\ndef mine() -> RunSpec:\n    return 3\n"
    )
    for words in (["train", "mine", "--out", tmp_path / "runs"], ["levers", "--recipe", "mine"]):
        code, _, error = fulcrum(capsys, *words, "--with", path)
        assert code == 2 and f"the recipe 'mine' ({path}) gave int, not a run" in error, error
        assert "docs/write-a-lever.md" in error
