"""What is wrong with a user's own metric or extractor, or with an array, is one line with a hint:
never a traceback."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fulcrum.cli import main
from tests.measure.drawn import encoded, folder, pictures

METRIC = """
from fulcrum.measure.metrics.base import Distance, RowDistance

class Gap(RowDistance):
    name, label, estimator = "gap", "Gap", "mean"

    def value(self, pictures, reference):
        %s
"""
WHOLE = """
from fulcrum.measure.metrics.base import Distance

class Gap(Distance):
    name, label, estimator = "gap", "Gap", "mean"

    def compute(self, pictures, reference):
        return %s
"""
EXTRACTOR = """
import torch
from fulcrum.measure.user_metrics import OwnExtractor

class Colours(OwnExtractor):
    name, width, resize = "colours", 3, "none"

    def features(self, images):
        %s
"""
MEANS = "return images.float().mean((2, 3))"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sets")
    for seed, name in ((1, "a"), (2, "b")):
        folder(path / name, pictures(seed))
    return path


def said(capsys, place: Path, *words: object) -> tuple[int, dict]:
    with pytest.raises(SystemExit) as end:
        main(["measure", *map(str, words), "--out", str(place / "runs"), "--json", "--quiet"])
    printed = capsys.readouterr()
    assert printed.err == ""  # no warning, no traceback
    return end.value.code, json.loads(printed.out.strip().splitlines()[-1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("class Gap(:", "own.py, line 1"),
        (METRIC % "raise ValueError('mine')", "ValueError: mine"),
        (METRIC % "return {}['x']", "KeyError"),
        (METRIC % "raise SystemExit(0)", "SystemExit"),
        (METRIC % "return float('nan')", "not finite"),
        (METRIC % "return float('inf')", "not finite"),
        (METRIC % "return None", "not 'NoneType'"),
        (METRIC % "return pictures", "one element"),
        (METRIC % "pictures.zero_(); return 1.0", "changes the features"),
        (METRIC.replace('"Gap", "mean"', "1, None") % "return 1.0", "needs `label`"),
        (METRIC.replace("    def value", "    sees = 3\n    def value") % "return 1.0", "`sees`"),
        (
            METRIC.replace("    def value", "    minimum = 'x'\n    def value") % "return 1.0",
            "`minimum`",
        ),
        (
            METRIC.replace("    def value", "    gathers = int\n    def value") % "return 1.0",
            "`gathers`",
        ),
        (WHOLE % "1.0", "not iterable"),
        (WHOLE % "(1.0, 2.0)", "expected 3"),
        (WHOLE % "(1.0, 2.0, 0.0)", "upside down"),
        (
            EXTRACTOR % "raise ValueError('mine')",
            "0000.png: the extractor 'colours' failed on it: mine",
        ),
        (EXTRACTOR % "raise SystemExit(0)", "ended the process"),
        (EXTRACTOR % "return None", "found NoneType"),
        (
            EXTRACTOR % "return torch.zeros(len(images), 3)",
            "cannot be computed: half of the reference rows are identical",
        ),
        (EXTRACTOR % "return torch.ones(len(images), 3) * torch.nan", "NaN or infinity"),
        (EXTRACTOR % "return torch.ones(len(images), 3) * 1j", "complex"),
        (EXTRACTOR % "return images.float().flatten(1)[:, :5]", "says width 3 and gave 5"),
        ((EXTRACTOR % MEANS).replace('"colours", 3', '"../x", 3'), "is called '../x'"),
        ((EXTRACTOR % MEANS).replace('"colours", 3', '"colours", 0'), "width 0"),
        ((EXTRACTOR % MEANS).replace("    def", '    weights = "abc"\n\n    def'), "`weights`"),
    ],
)
def test_own_files(text: str, says: str, place: Path, tmp_path: Path, capsys) -> None:
    own = tmp_path / "own.py"
    own.write_text(text)
    code, answer = said(capsys, place, place / "a", place / "b", "--metrics", own)
    assert code == 2 and says in answer["error"] and "\n" not in answer["error"]


@pytest.mark.parametrize(
    "kind",
    ["int16", "bool", "complex64", "U3", "datetime64[s]", [("a", "u1"), ("b", "f4")], object],
)
def test_arrays_of_other_types(kind, place: Path, tmp_path: Path, capsys) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((80, 16, 16, 3), dtype=kind))
    code, answer = said(capsys, place, tmp_path / "x.npz", place / "b")
    assert code == 2 and (
        "numbers of type" in answer["error"] or "could run code" in answer["error"]
    )


def test_a_range_is_that_of_floats_only(place: Path, tmp_path: Path, capsys) -> None:
    """Floats against a folder of bytes, in either byte order and either order of axes, are the
    numbers of the bytes."""
    floats = pictures(1).astype(">f4") / 255
    np.savez(tmp_path / "a.npz", images=floats.transpose(0, 3, 1, 2).copy())
    _, bytes_ = said(capsys, place, place / "a", place / "b")
    code, answer = said(capsys, place, tmp_path / "a.npz", place / "b", "--range", "0,1")
    assert code == 0
    for name, one in answer["metrics"].items():
        assert one["value"] == bytes_["metrics"][name]["value"]
    for words, says in (
        ((place / "a", place / "b", "--range", "0,1"), "no set holds floating point"),
        ((tmp_path / "a.npz", place / "b"), "need a declared range"),
        ((tmp_path / "a.npz", place / "b", "--range", "1,0"), "not a range"),
        ((tmp_path / "a.npz", ""), "an empty name"),
    ):
        code, answer = said(capsys, place, *words)
        assert code == 2 and says in answer["error"]


def test_damage_inside_a_compressed_array(place: Path, tmp_path: Path, capsys) -> None:
    np.savez_compressed(tmp_path / "x.npz", images=pictures(1))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[len(data) // 2] ^= 255
    (tmp_path / "x.npz").write_bytes(data)
    code, answer = said(capsys, place, tmp_path / "x.npz", place / "b")
    assert code == 2 and "damaged" in answer["error"]


def test_what_is_no_file_and_names_that_are_no_text(place: Path, tmp_path: Path, capsys) -> None:
    """A pipe would make the command wait for ever; a name may hold anything but a slash."""
    path = folder(tmp_path / "a", pictures(1))
    cases = {
        "pipe.png": "device or a pipe",
        "loop.png": "symbolic links",
        "zero.png": "device or a pipe",
        "gone.png": "No such file",
    }
    for name, says in cases.items():
        odd = path / name
        if name == "pipe.png":
            os.mkfifo(odd)
        else:
            os.symlink(
                {"loop.png": odd, "zero.png": "/dev/zero", "gone.png": tmp_path / "none.png"}[name],
                odd,
            )
        code, answer = said(capsys, place, path, place / "b")
        assert code == 2 and says in answer["error"] and name in answer["error"]
        odd.unlink()
    for strange in (b"a\nb\x1b[31m.png", b"\xff.png"):
        bad = os.path.join(os.fsencode(path), strange)
        with open(bad, "wb") as stream:
            stream.write(b"no picture")
        code, answer = said(capsys, place, path, place / "b")
        assert code == 2 and answer["error"].isprintable()
        code, answer = said(capsys, place, path, place / "b", "--skip-bad")
        assert (
            code == 0 and answer["pictures"]["n"] == 80 and len(answer["pictures"]["skipped"]) == 1
        )
        os.unlink(bad)


def test_a_place_that_cannot_be_written(place: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_bytes(encoded(pictures(1, 1)[0]))
    with pytest.raises(SystemExit) as end:
        main(
            [
                "measure",
                str(place / "a"),
                str(place / "b"),
                "--out",
                str(tmp_path / "file"),
                "--quiet",
            ]
        )
    assert end.value.code == 2 and "choose another place with --out" in capsys.readouterr().err
