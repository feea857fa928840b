"""Arms are called as people call them."""

from typing import Any, cast

import pytest

from fulcrum.studies.arms import Arm
from fulcrum.studies.result import label


@pytest.mark.parametrize(
    "name, called",
    [
        ("short_captions", "Short captions"),
        ("bf16_storage", "BF16 storage"),
        ("irepa", "iREPA"),
        ("min_snr(gamma=5)", "Min-SNR(gamma=5)"),
        ("x_prediction", "x-prediction"),
        ("muon + tread", "Muon + TREAD"),
        ("end_to_end_codec on repa", "End-to-end codec on REPA"),
        ("ema [small]", "EMA [small]"),
    ],
)
def test_names_of_levers_are_spelled_in_their_own_way(name: str, called: str) -> None:
    assert label(Arm(name, cast(Any, None), cast(Any, None), [], False)) == called
