"""A person's own term that ends the process, or writes over what the gradient needs: its file is
named."""

import json
from pathlib import Path

import pytest

from fulcrum.cli import main
from tests.conftest import TINY

FILE = """
from typing import ClassVar
from torch import nn
from fulcrum import Card, Lever, put
from fulcrum.spec import slots

class Term(nn.Module):
    taps = ()
    def forward(self, view):
        BODY

class OwnTerm(slots.TermFiller):
    kind = "own_term"
    name: str = "own_term"
    weight: float = 1.0

    def build(self, ctx):
        return Term()

class Own(Lever):
    name: ClassVar[str] = "own"
    touches: ClassVar[tuple[str, ...]] = ("terms",)
    card: ClassVar[Card] = Card(says="a term of its own")

    def edit(self, run):
        return put(run, "terms", (*run.terms, OwnTerm()))

    def witness(self, built):
        return True
"""
EDIT = "a = view.v.exp(); b = a.square(); a.add_(1); return b.mean((1, 2, 3))"


def trained(
    body: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, str]]:
    (folder / "mine.py").write_text(FILE.replace("BODY", body))
    words = [
        "train",
        "spark + own",
        "--with",
        str(folder / "mine.py"),
        "--out",
        str(folder / "runs"),
    ]
    for setting in TINY:
        words += ["--set", setting]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--quiet", "--no-compile", "--json"])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "body", ["raise SystemExit(0)", "raise SystemExit", "import sys; sys.exit('bye')"]
)
def test_a_term_that_ends_the_process_is_no_success(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = trained(body, tmp_path, capsys)
    assert (
        code == 2
        and "SystemExit" in answer["error"]
        and f"{tmp_path / 'mine.py'}, line 10" in answer["error"]
    )


def test_an_edit_in_place_is_blamed_on_the_terms_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, answer = trained(EDIT, tmp_path, capsys)
    assert code == 2 and answer["error"].startswith(
        f"the term 'own_term' ({tmp_path / 'mine.py'}) changes a tensor in place"
    )
    assert "x = x + 1" in answer["hint"]


@pytest.mark.parametrize(
    "body",
    [EDIT, "raise SystemExit(0)", "return view.v.mean()", "raise ValueError('no')", "return 1 / 0"],
)
def test_what_was_refused_at_its_first_step_is_not_listed_as_stopped(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(body, tmp_path, capsys)[0] == 2
    with pytest.raises(SystemExit):
        main(["runs", "list", "--out", str(tmp_path / "runs"), "--json"])
    assert json.loads(capsys.readouterr().out)["runs"] == []


def test_a_lever_that_is_not_on_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = FILE.replace("return True", "return False").replace(
        "BODY", "return view.v.mean((1, 2, 3))"
    )
    (tmp_path / "off.py").write_text(off)
    settings = [word for setting in TINY for word in ("--set", setting)]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "train",
                "spark + own",
                "--with",
                str(tmp_path / "off.py"),
                "--out",
                str(tmp_path / "runs"),
                *settings,
                "--quiet",
            ]
        )
    assert ended.value.code == 2 and "own" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "runs").iterdir() if path.name != "cache"]
