"""The data card: plain data that would betray an overlap, and a sheet to look at."""

import json

import numpy as np
from PIL import Image

from fulcrum.data import sheets as card_module
from fulcrum.data.sheets import data_card, world_sheet
from fulcrum.data.source import WorldSource
from fulcrum.data.world.scene import scenes

SOURCES = [WorldSource("train", "synthetic", 16, 900), WorldSource("validation", "real", 16, 300)]


def test_the_card_states_counts_hashes_and_proportions():
    card = json.loads(json.dumps(data_card(SOURCES)))
    assert [s["count"] for s in card["sources"]] == [900, 300]
    assert card["sources"][0]["fingerprint"] == SOURCES[0].fingerprint()
    assert card["overlap"] == {"shared_descriptions": {"train and validation": 0}, "disjoint": True}
    for shares in card["sources"][0]["proportions"].values():
        assert abs(sum(shares.values()) - 1) < 0.001


def test_the_card_would_betray_an_overlap():
    one = scenes("train", np.arange(20))
    leaked = card_module.Scenes(**{**one.__dict__, "split": "validation"})
    assert card_module._overlap([one, leaked])["disjoint"] is False


def test_the_contact_sheet_is_a_picture(tmp_path):
    path = world_sheet(tmp_path / "new" / "sheet.png", SOURCES)
    with Image.open(path) as sheet:
        assert (
            sheet.width > 2 * 128 and sheet.height > 2 * 128 and len(sheet.getcolors(1 << 20)) > 500
        )


def test_the_card_states_what_was_planted():
    wrong = WorldSource("train", "real", 16, 900, mislabelled=0.1)
    told = data_card([SOURCES[0], wrong])["sources"]
    assert told[0]["mislabelled"] == {"share": 0.0, "planted": 0}
    assert told[1]["mislabelled"] == {
        "share": 0.1,
        "planted": int(wrong.planted(np.arange(900)).sum()),
    }
    assert 50 < told[1]["mislabelled"]["planted"] < 140
