"""The golden table of keys: a changed key means changed science, or a changed part that runs read.

If a change is meant, raise SCIENCE where equal specs now train differently, and write the table
anew:
    python tests/spec/test_keys.py
"""

import json
from pathlib import Path

import pytest

from fulcrum import phrase
from fulcrum.spec.edit import key

TABLE = Path(__file__).with_name("golden_keys.json")
PHRASES = (
    "spark",
    "pocket",
    "pocket_64",
    "pocket_pixels",
    "pocket_pixels_large",
    "prx_256",
    "prx_pixels_1024",
    "spark + muon",
    "spark + short_captions",
    "spark + bf16_storage",
    "pocket + tread(drop=0.5) + muon + ema",
    "spark + synthetic_then_real + sft_stage",
)


@pytest.mark.parametrize("text", PHRASES)
def test_golden_keys(text):
    assert key(phrase(text), 0) == json.loads(TABLE.read_text())[text]


if __name__ == "__main__":
    TABLE.write_text(json.dumps({text: key(phrase(text), 0) for text in PHRASES}, indent=1) + "\n")
