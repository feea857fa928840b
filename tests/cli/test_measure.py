"""fulcrum measure on pictures: the contract for scripts, the table for people, exit codes."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.cli.measure import table
from fulcrum.judge.card import Measured, MetricCard
from fulcrum.spec import progress as countdown

OWN = """
from fulcrum.measure.metrics.base import RowDistance
from fulcrum.measure.user_metrics import OwnExtractor

class Colours(OwnExtractor):
    name, width, resize = "colours", 3, "none"

    def features(self, images):
        return images.float().mean((2, 3))

class MeanGap(RowDistance):
    name, label, estimator = "mean_gap", "Distance of means", "Euclidean"
    sees = {"negated": "%s", "halved": "stays"}

    def value(self, pictures, reference):
        return float((pictures.mean(0) - reference.mean(0)).norm())
"""


def fulcrum(capsys, *words):
    """Exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    return end.value.code, printed.out, printed.err


def images(seed, n=80, low=0):
    return np.random.default_rng(seed).integers(low, low + 100, (n, 16, 16, 3)).astype(np.uint8)


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    for number, image in enumerate(images(1)):
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    np.savez(tmp_path / "b.npz", images(2))
    return folder, tmp_path / "b.npz"


def test_two_sets(sets, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(countdown, "SOONEST", 0.0)  # as if it took long
    words = ["measure", *sets, "--out", tmp_path / "runs", "--json", "--curve"]
    code, out, err = fulcrum(capsys, *words)
    answer = json.loads(out.strip().splitlines()[-1])
    assert code == 0 and "80 of 80 pictures, 0 s left" in err
    assert set(answer) == {"pictures", "reference", "metrics", "extractors", "curves"}
    assert set(answer["metrics"]) == {
        "frechet",
        "frechet_limit",
        "mmd",
        "mmd_published",
        "kid",
        "density",
        "coverage",
    }
    for one in answer["metrics"].values():
        assert {"value", "low", "high", "card"} <= set(one) and one["low"] <= one["value"] <= one[
            "high"
        ]
        assert one["card"]["n"] == 80 and one["card"]["reference"] == answer["reference"]["hash"]
    assert answer["pictures"]["n"] == 80 and answer["extractors"][0]["name"] == "embedded"
    assert [point["n"] for point in answer["curves"]["mmd"]] == [80]
    again = json.loads(fulcrum(capsys, *words)[1].strip().splitlines()[-1])
    assert again["metrics"] == answer["metrics"]


def test_table_own_metric_and_only(sets, tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN % "worse")
    code, out, _ = fulcrum(
        capsys,
        "measure",
        *sets,
        "--metrics",
        tmp_path / "own.py",
        "--only",
        "mean_gap",
        "--out",
        tmp_path / "runs",
        "--quiet",
    )
    assert code == 0 and "colours.mean_gap" in out and "N = 80" in out and "lower is better" in out
    heading, row, _, card = out.splitlines()[2:]  # after what was measured against what
    assert "[95 % interval]" in heading and "colours.mean_gap" in row
    assert re.fullmatch(r"  colours\.mean_gap: N = 80, extractor \w{12}, reference \w{12}", card)


def test_metrics_that_were_measured_alike_share_a_card_line(sets, tmp_path, capsys):
    code, out, _ = fulcrum(capsys, "measure", *sets, "--out", tmp_path / "runs", "--quiet")
    cards = out.splitlines()[out.splitlines().index("cards in short, whole with --json") + 1 :]
    assert code == 0 and len(cards) == 1
    assert cards[0].startswith(
        "  frechet, frechet_limit, mmd, mmd_published, kid, density, coverage: N = 80"
    )


def test_skipped_pictures_are_told(sets, tmp_path, capsys):
    (sets[0] / "050.png").write_bytes(b"broken")
    code, out, _ = fulcrum(capsys, "measure", *sets, "--out", tmp_path / "runs", "--json")
    assert (
        code == 2
        and "050.png" in json.loads(out)["error"]
        and "--skip-bad" in json.loads(out)["hint"]
    )
    code, out, _ = fulcrum(
        capsys, "measure", *sets, "--skip-bad", "--out", tmp_path / "runs", "--quiet"
    )
    assert code == 0 and "N = 79" in out and "1 skipped" in out and "050.png" in out


@pytest.mark.parametrize(("declared", "code"), [("worse", 0), ("stays", 1)])
def test_probe_of_an_own_metric(declared, code, tmp_path, capsys):
    """A declaration that does not hold is exit code 1, in words and in JSON."""
    for name, seed in (("a", 1), ("b", 2)):
        np.savez(tmp_path / f"{name}.npz", images(seed, 512))
    (tmp_path / "own.py").write_text(OWN % declared)
    words = [
        "measure",
        tmp_path / "a.npz",
        tmp_path / "b.npz",
        "--probe",
        "--metrics",
        tmp_path / "own.py",
        "--only",
        "mean_gap",
        "--out",
        tmp_path / "runs",
        "--quiet",
    ]
    exit_code, out, err = fulcrum(capsys, *words)
    assert (
        exit_code == code
        and "negated" in out
        and ("does not do what it declares" in err) == bool(code)
    )
    exit_code, out, _ = fulcrum(capsys, *words, "--json")
    answer = json.loads(out.strip().splitlines()[-1])
    assert (
        exit_code == code
        and answer["as_declared"] == (not code)
        and len(answer["mismatches"]) == code
    )
    assert json.loads((tmp_path / "runs" / "cache" / "probes.json").read_text())["n"] == 512


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to measure"),
        (["A", "nowhere"], "nothing at"),
        (["A", "B", "--features", "inceptoin=x"], "no extractor is called"),
        (["A", "B", "--features", "clip"], "needs its weights"),
        (["A", "B", "--only", "freshet"], "no metric is called"),
        (["A", "B", "--range", "high"], "not a range"),
        (["A", "B", "--background", "mauve"], "not a colour"),
        (["A", "B", "--metrics", "none.py"], "no Python file"),
        (["A", "B", "--features", "embedded", "--features", "embedded"], "given twice"),
        (["A", "--probe"], "needs no pictures, or both"),
        (["A", "B", "--probe"], "at least 512 pictures"),
    ],
)
def test_bad_words(words, says, sets, tmp_path, capsys):
    places = {"A": sets[0], "B": sets[1]}
    code, out, _ = fulcrum(
        capsys,
        "measure",
        *(places.get(word, word) for word in words),
        "--out",
        tmp_path / "runs",
        "--json",
        "--quiet",
    )
    assert code == 2 and says in json.loads(out.strip().splitlines()[-1])["error"]


def test_a_value_stands_between_its_floor_and_its_ceiling_with_its_caution():
    card = MetricCard(
        metric="attribute_f1",
        better="higher",
        estimator="e",
        interval="i",
        n=64,
        ceiling=0.998,
        floors={"noise": 0.04, "grey": 0.0},
        caution="few pictures",
    )
    lines = table({"attribute_f1": Measured(value=0.5, low=0.4, high=0.6, card=card)}, {})
    assert lines[1].endswith("higher is better  (noise 0.0400, real pictures 0.9980)")
    assert "  mind: attribute_f1: few pictures" in lines
