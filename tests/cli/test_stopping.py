"""A stopped command says so, and how to go on."""

import json
import signal
import subprocess
import sys

import pytest
import typer

from fulcrum import cli

STOPS = """
import signal, sys
import fulcrum.cli as cli

@cli.app.command()
def wait(as_json: bool = False) -> None:
    signal.raise_signal(getattr(signal, sys.argv[1]))

cli.main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("name", "stopper", "code"), [("SIGINT", "Ctrl-C", 130), ("SIGTERM", "SIGTERM", 75)]
)
def test_a_signal_in_a_command_is_told_by_its_name(name: str, stopper: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPS, name, "wait"], capture_output=True, text=True, timeout=60
    )
    assert (
        done.returncode == code
        and f"stopped by {stopper}" in done.stderr
        and "again to go on" in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "again", "code"),
    [("SIGINT", "SIGINT", 130), ("SIGINT", "SIGTERM", 130), ("SIGTERM", "SIGINT", 75)],
)
def test_one_more_signal_while_it_ends_changes_no_code(name: str, again: str, code: int) -> None:
    """Python ends by the signal itself, -2, if it comes when Python is taken down: its own handlers
    are gone by then."""
    late = (
        "import signal\nclass Last:\n def __del__(self, send=signal.raise_signal):"
        f" send({getattr(signal, again):d})\n"
    )
    late += "import sys; sys.kept_to_the_end = Last()\n"
    done = subprocess.run(
        [sys.executable, "-c", late + STOPS, name, "wait"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (
        done.returncode == code
        and "Traceback" not in done.stderr
        and done.stderr.count("stopped by") == 1
    )


@pytest.mark.parametrize("again", ["SIGINT", "SIGTERM"])
def test_a_signal_while_an_error_is_told_leaves_a_documented_code(again: str) -> None:
    """It came as an error out of the handling of another, and Python ended with -2."""
    code = STOPS.replace(
        "signal.raise_signal(getattr(signal, sys.argv[1]))", "raise ValueError('a cause')"
    )
    code = code.replace(
        "@cli.app",
        "cli.shown_lines = lambda text: signal.raise_signal(getattr(signal, sys.argv[1])) or"
        " text\n@cli.app",
    )
    done = subprocess.run(
        [sys.executable, "-c", code, again, "wait"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (130 if again == "SIGINT" else 1) and "Traceback" not in done.stderr
    assert ("a cause" in done.stderr) == (again == "SIGTERM")


def test_a_command_that_cannot_go_on_does_not_say_so() -> None:
    """An audit that was stopped said how to go on, and began anew."""
    code = STOPS.replace("@cli.app.command()", '@cli.app.command("audit")')
    done = subprocess.run(
        [sys.executable, "-c", code, "SIGTERM", "audit"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 75 and "go on" not in done.stderr and "it begins anew" in done.stderr


def test_it_is_told_to_scripts_too() -> None:
    code = STOPS.replace("as_json: bool = False", "json: bool = False")
    words = [sys.executable, "-c", code, "SIGINT", "wait", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert set(json.loads(done.stdout.splitlines()[-1])) == {"error", "hint"}


@pytest.mark.parametrize(("answer", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_a_question_is_left_by_ctrl_c_as_everything_is(
    answer: type[BaseException],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Typer makes one error of Ctrl-C and of an input that has ended."""

    def asked(prompt: str) -> str:
        raise answer

    monkeypatch.setattr("typer._click.termui.visible_prompt_func", asked)
    app = typer.Typer()
    app.command()(lambda: typer.confirm("remove it?"))
    monkeypatch.setattr(cli, "app", app)
    # this process goes on
    monkeypatch.setattr(cli, "_end_at_once_if_asked_again", lambda code: None)
    with pytest.raises(SystemExit) as end:
        cli.main([])
    # who stops it made no mistake
    begins = "stopped" if answer is KeyboardInterrupt else "error: stopped"
    assert end.value.code == code and capsys.readouterr().err.strip().startswith(begins)


def test_the_release_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fulcrum", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.startswith("fulcrum-lab ")
