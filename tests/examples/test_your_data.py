"""The reader of docs/your-data.md: the very code of the page, from a database to a trained run."""

import io
import json
import re
import sqlite3
from pathlib import Path

import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.files.sealed import sha256_bytes

PAGE = Path(__file__).parents[2] / "docs" / "your-data.md"
TINY = ("model.width=32", "model.depth=4", "model.heads=2", "budget.batch=8", "sample.steps=2")


@pytest.fixture
def album(tmp_path, monkeypatch):
    """The page's file beside a database of 120 pictures, three of them without a title."""
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(\"\"\"album.py.*?)```", PAGE.read_text(), re.S).group(1)
    assert len(code.splitlines()) <= 35
    Path("album.py").write_text(code)
    with sqlite3.connect("album.db") as file:
        file.execute("create table pictures(id integer, data blob, title text, album text)")
        for number in range(120):
            stream = io.BytesIO()
            Image.effect_noise((40, 36), 20 + number).convert("RGB").save(stream, "PNG")
            title = "a small grey square." if number % 40 else None
            file.execute(
                "insert into pictures values (?, ?, ?, ?)",
                (number, stream.getvalue(), title, f"album {number % 30}"),
            )
    return code


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    written = capsys.readouterr()
    return end.value.code, written.out, written.err


def test_it_imports_and_trains(album, capsys):
    command = ("data", "import", "album.db", "my_data", "--with", "album.py", "--size", 32)
    code, _, error = fulcrum(capsys, *command)
    assert code == 2 and "picture 0: it has no title" in error
    code, out, error = fulcrum(capsys, *command, "--bad", "quarantine", "--json")
    facts = json.loads(out.splitlines()[-1])
    assert code == 0 and facts["ledger"]["kept"] == 117 and facts["ledger"]["quarantined"] == 3, (
        error
    )
    card = json.loads(Path("my_data/card.json").read_text())
    assert card["reader"] == "Album" and card["reader_sha256"] == sha256_bytes(album.encode())
    settings = [*TINY, "data.source=folder(path='my_data')", "data.size=32"]
    words = [word for setting in settings for word in ("--set", setting)]
    code, out, error = fulcrum(
        capsys, "train", "spark", "--images", 16, *words, "--threads", 1, "--quiet", "--json"
    )
    assert code == 0 and json.loads(out.splitlines()[-1])["images"] == 16, error


def test_what_is_wrong_with_a_reader_is_said(album, capsys):
    command = ("data", "import", "album.db", "my_data", "--with", "album.py")
    assert "are for readers of ours" in fulcrum(capsys, *command, "--table", "x.csv")[2]
    Path("album.py").write_text(album.replace("order by id", "order by nothing"))
    code, _, error = fulcrum(capsys, *command)
    assert code == 2 and "album.py, line" in error and "syntax error" in error
    Path("album.py").write_text(album.replace('kind = "an album in SQLite"', ""))
    assert "needs a `kind`" in fulcrum(capsys, *command)[2]
    Path("album.py").write_text("x = 1")
    assert "defines 0 readers" in fulcrum(capsys, *command)[2]
    assert not Path("my_data").exists()
