"""Plans beyond all measure, from a file or from Python: refused in words, at once."""

import json
import time

import pytest

from fulcrum.cli import LONGEST, main
from fulcrum.spec.errors import BadInput
from fulcrum.studies.plan_file import from_person

PLAN = {"title": "t", "baseline": "spark", "arms": ["muon"], "seeds": [0, 1], "images": 64}
HUGE = 10**5_000  # Python itself refuses to write it


@pytest.mark.parametrize(
    "field, value, why",
    [
        (
            "seeds",
            list(range(200_000)),
            "200,000 seeds are more than one study can run, at most 1,000",
        ),
        (
            "arms",
            [f"tread(drop=0.{number:06d})" for number in range(20_000)],
            "20,000 arms are more than",
        ),
        ("seeds", [HUGE, 1], "thousands of digits"),
        ("seeds", HUGE, "thousands of digits"),
        ("images", HUGE, "digits"),
        ("scales", [HUGE], "digits"),
        ("arms", [HUGE], "digits"),
        ("stop_early", HUGE, "digits"),
        ("title", "\ud800", "halves of letters"),
        ("baseline", "spark\udcff", "halves of letters"),
        ("arms", [7] * 5, "an arm cannot be 7"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) and value.isprintable() else "value",
)
def test_a_plan_beyond_measure_is_refused_in_few_words(field, value, why):
    begun = time.monotonic()
    with pytest.raises(BadInput, match=why) as error:
        from_person({**PLAN, field: value}, "the plan")
    assert time.monotonic() - begun < 5 and len(str(error.value)) < 2_000


@pytest.mark.parametrize(
    "line",
    [
        "seeds = " + json.dumps(list(range(200_000))),
        "seeds = " + "9" * 5_000,
        'settings = ["' + ".".join(["a"] * 50_000) + '=1"]',
        "samples = " + "9" * 4_000,
    ],
    ids=lambda line: line[:8],
)
def test_a_plan_file_beyond_measure_is_bad_input_with_a_short_message(line, tmp_path, capsys):
    fields = {**PLAN}
    fields.pop(line.split(" = ")[0], None)
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    (tmp_path / "plan.toml").write_text(f"{text}\n{line}\n")
    begun = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(["study", "plan", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "runs")])
    told = capsys.readouterr().err
    assert (
        ended.value.code == 2 and "should not happen" not in told and len(told) < 2 * LONGEST + 100
    )
    assert time.monotonic() - begun < 20


def test_a_setting_of_50_000_parts_is_told_shortly(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "spark", "--set", "optim." + "x." * 50_000 + "x=1", "--out", str(tmp_path)])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and len(told) < 2 * LONGEST + 100
