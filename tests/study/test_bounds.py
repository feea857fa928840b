"""Numbers of a plan that a machine or the draws cannot bear are refused."""

import pytest

from fulcrum.spec.errors import BadInput
from fulcrum.studies.plan_file import load


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # 2^64: its draws would be those of seed 0
        ("seeds = [0, 18446744073709551616]", "at most"),
        ("seeds = [-1, 0]", "at least 0"),
        ("seeds = [0, 1]\nthreads = 100000", "at most 1,024"),
    ],
)
def test_out_of_bounds(line: str, expected: str, tmp_path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(f'title = "t"\nbaseline = "spark"\narms = ["muon"]\n{line}\n')
    with pytest.raises(BadInput) as error:
        load(file)
    assert expected in error.value.message
