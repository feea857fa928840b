"""Every command's --help ends with an example, and the examples work."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from PIL import Image

from fulcrum.cli import app, main
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.phrase import parse
from fulcrum.studies.plan_file import SHIPPED
from tools.pages.command_pages import every_command

ROOT = Path(__file__).parents[2]
OF_A_RUN = ("sample", "export", "runs show", "runs rm")  # in an order in which each can be done
# What takes its time is tried by tests of its own; here it is read, not run.
LONG = {
    "train",
    "encode",
    "measure",
    "study plan",
    "study run",
    "study merge",
    "study keep",
    "study verify",
    "report",
    "rerun",
    "gallery",  # serves until it is stopped
    "audit",  # wants a script
    "levers check",
    "levers",
    "levers pages",
    "data score",  # wants a CLIP
}
TINY = [
    word
    for setting in (
        "model.width=32",
        "model.depth=4",
        "model.heads=2",
        "budget.batch=8",
        "data.source.count=16",
        "sample.steps=2",
    )
    for word in ("--set", setting)
]


COMMANDS = every_command(app)


def example(name):
    """The words of the example, after `fulcrum`."""
    epilog = COMMANDS[name].epilog or ""
    assert epilog.startswith(f"Example: fulcrum {name}"), f"fulcrum {name} --help has no example"
    return shlex.split(epilog.removeprefix("Example: fulcrum "))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_that_can_be_read(name):
    words = example(name)[len(name.split()) :]
    # an option that is not there, or a word too many: an error
    context = COMMANDS[name].make_context(name, words)
    if "phrase" in context.params:
        assert parse(context.params["phrase"], CATALOG).levers
    if "plan" in context.params:
        assert str(context.params["plan"]) in SHIPPED or (ROOT / context.params["plan"]).is_file()


def test_the_help_prints_it(capsys):
    with pytest.raises(SystemExit) as end:
        main(["runs", "gc", "--help"])
    assert not end.value.code and "fulcrum runs gc --dry-run" in capsys.readouterr().out


def test_the_examples_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number in range(40):
        Image.effect_noise((80, 70), 20 + number).convert("RGB").save(
            tmp_path / "photos" / f"{number}.png"
        )
        (tmp_path / "photos" / f"{number}.txt").write_text("a small grey square")
    some = [name for name in COMMANDS if name not in {*LONG, *OF_A_RUN}]
    # the others look at what it writes
    for name in sorted(some, key=lambda name: name != "data import"):
        done(capsys, *example(name))
    assert (tmp_path / "sheet.png").is_file()


def test_the_examples_of_a_run_work_too(tmp_path, monkeypatch, capsys):
    pytest.importorskip("diffusers", reason="export needs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(typer, "confirm", lambda question: True)
    run = json.loads(
        done(
            capsys, "train", "spark", "--images", "8", *TINY, "--threads", "1", "--json"
        ).splitlines()[-1]
    )
    for name in OF_A_RUN:
        done(capsys, *(run["key"] if word == "RUN" else word for word in example(name)))
    for part in ("transformer", "vae", "text_encoder"):
        assert (tmp_path / "my_pipeline" / part / "config.json").is_file()
    assert (tmp_path / "my_pipeline" / "model_index.json").is_file() and not Path(
        run["run"]
    ).exists()


def done(capsys, *words):
    """What a command that succeeds writes to stdout."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    printed = capsys.readouterr()
    assert not end.value.code, f"{words}: {printed.err}"
    return printed.out


@pytest.mark.parametrize("name", COMMANDS)
def test_no_bracketed_word_is_lost_as_markup(name, monkeypatch, capsys):
    """`ignore[rule] reason` was shown as `ignore reason`."""
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    monkeypatch.setenv("COLUMNS", "400")
    command = COMMANDS[name]
    texts = [command.help, command.epilog, *(getattr(one, "help", "") for one in command.params)]
    words = {
        word
        for text in texts
        for word in re.findall(r"\S*\[[^\]]*\]", (text or "").replace("\\[", "["))
    }
    assert not {word for word in words if word not in done(capsys, *name.split(), "--help")}
    assert name != "audit" or words == {"ignore[rule]"}, "the test looks at what it is about"


def test_the_help_of_train_names_every_recipe():
    assert [name for name in CATALOG.recipes if name not in COMMANDS["train"].help] == []


def test_help_says_of_every_python_file_that_it_is_executed():
    options = [
        one
        for command in COMMANDS.values()
        for one in command.params
        if "Python file" in (getattr(one, "help", "") or "")
    ]
    names = {name for one in options for name in one.opts}
    assert {"--with", "--levers", "--metrics"} <= names
    assert not [one.opts for one in options if "executed" not in one.help]
    own = {
        one
        for command in COMMANDS.values()
        for one in command.params
        if {"--with", "--metrics"} & set(one.opts)
    }
    assert own <= set(options)
