"""A loss and an update rule as a reader of docs/write-a-lever.md would write them."""

from pathlib import Path

import pytest

from fulcrum import train
from fulcrum.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = {"dispersive": ROOT / "examples/dispersive.py", "lion": ROOT / "examples/lion.py"}
TINY = ["data.source.count=256", "budget.images=64"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short_and_trains(name, tmp_path):
    code = [line for line in EXAMPLES[name].read_text().splitlines() if line.strip()]
    assert len(code) <= 40
    plain = train("spark", out=tmp_path, settings=TINY, compile=False)
    arm = train(
        f"spark + {name}", out=tmp_path, settings=TINY, files=[EXAMPLES[name]], compile=False
    )
    assert arm.result["weights_sha256"] != plain.result["weights_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_holds_the_ten_laws(name, capsys):
    with pytest.raises(SystemExit) as end:
        main(["levers", "check", name, "--with", str(EXAMPLES[name])])
    assert not end.value.code, capsys.readouterr().out
