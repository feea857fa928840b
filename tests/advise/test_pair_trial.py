"""Scored pairs: swapped captions are found, right ones raise nothing, and a scorer that cannot read
says so."""

import numpy as np
import pytest
from PIL import Image

from fulcrum.advice.audit import AuditOptions, audit
from fulcrum.advice.caption_sets import PairTrial, ScoredPair, try_pairs
from fulcrum.advice.rules_captions import CaptionsUnlikePictures
from fulcrum.cli import main
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.derived_store import Decided, derive
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import PictureStore
from fulcrum.data.world.scene import render, scenes
from fulcrum.data.world.words import captions
from fulcrum.spec.errors import BadInput

COUNT = 64


@pytest.fixture
def world_folder(tmp_path):
    """Pictures of the embedded world, the first of them with the next one's caption."""

    def make(swapped):
        chosen = scenes("reference", np.arange(COUNT))
        texts = captions(chosen, "long").texts
        for number, image in enumerate(render(chosen, 32, "real")):
            Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / f"{number:03}.png")
            wrong = number < swapped
            (tmp_path / f"{number:03}.txt").write_text(
                texts[(number + 1) % max(swapped, 1)] if wrong else texts[number]
            )
        return tmp_path

    return make


def rules(path, **options):
    return {fault.rule: fault for fault in audit(str(path), AuditOptions(**options)).faults}


def test_right_captions_raise_nothing_and_are_counted(world_folder):
    found = audit(str(world_folder(0)), AuditOptions(score="world"))
    assert "captions-unlike-pictures" not in {fault.rule for fault in found.faults}
    assert "pairs scored by world" in found.looked_at


def test_the_captions_that_are_scored_can_be_named(world_folder, tmp_path):
    """A store with its old captions and new ones beside them could be asked about one column
    alone."""
    store = tmp_path.with_name("named_store")
    run_import(open_given(str(world_folder(0))), store, Options(size=32), lambda _: None)
    first = PictureStore(store)
    wrong = {row: first.captions((row + 1) % len(first))["long"] for row in range(len(first))}
    both = tmp_path.with_name("both_store")
    derive(
        first,
        both,
        lambda row: Decided("kept", captions={**first.captions(row), "swapped": wrong[row]}),
        lambda: {"generator": "a test"},
        False,
        lambda _: None,
    )
    assert "captions-unlike-pictures" not in rules(both, score="world")
    assert "captions-unlike-pictures" in rules(both, score="world", caption="swapped")
    with pytest.raises(BadInput, match="no picture of .* has a caption 'swaped'") as refused:
        try_pairs(str(both), "world", "swaped")
    assert "swapped" in refused.value.hint
    with pytest.raises(SystemExit):
        main(["audit", str(both), "--caption", "swapped"])


def test_swapped_captions_are_found_only_when_asked(world_folder):
    folder = world_folder(32)
    assert "captions-unlike-pictures" not in rules(folder)
    fault = rules(folder, score="world")["captions-unlike-pictures"]
    wrong = [one.name for one in try_pairs(str(folder), "world").misfits]
    assert len(wrong) >= 8 and all(int(name[:3]) < 32 for name in wrong), wrong
    assert wrong[0] in fault.place and f"{len(wrong)} of " in fault.seen


def test_a_tenth_that_fits_another_is_no_fault_yet():
    pairs = [ScoredPair(str(n), "a", 0.0 if n < 6 else 2.0, 1.0) for n in range(60)]
    assert not list(CaptionsUnlikePictures().in_pairs(PairTrial("world", pairs, 0)))
    more = [ScoredPair(str(n), "a", 0.0 if n < 7 else 2.0, 1.0) for n in range(60)]
    (sighting,) = CaptionsUnlikePictures().in_pairs(PairTrial("world", more, 0))
    assert "7 of 60" in sighting.seen and "23%" in sighting.seen
    assert sighting.fix.endswith(
        "fulcrum data filter my_data_store my_data_store_fitting --score world --drop 0.1"
    )


def test_a_scorer_that_tells_no_better_than_chance_blames_no_caption():
    """`about 97% may be wrong` was said of right captions whose pictures the scorer did not
    know."""
    pairs = [ScoredPair(str(n), "a", 0.0 if n < 16 else 2.0, 1.0) for n in range(33)]
    (sighting,) = CaptionsUnlikePictures().in_pairs(PairTrial("world", pairs, 0))
    assert (
        sighting.severity == "note"
        and "does not know such pictures" in sighting.seen
        and "%" not in sighting.seen
    )
    few = [ScoredPair(str(n), "a", 0.0 if n < 8 else 2.0, 1.0) for n in range(33)]
    (sure,) = CaptionsUnlikePictures().in_pairs(PairTrial("world", few, 0))
    (unsure,) = CaptionsUnlikePictures().in_pairs(PairTrial("world", few, 0, "not of its world"))
    assert sure.severity is None and unsure.severity == "note"


def test_captions_of_another_world_are_refused_with_a_hint(tmp_path):
    for number in range(12):
        Image.effect_noise((40, 40), 20 + number).convert("RGB").save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.txt").write_text(f"ein Ruderboot Nummer {number}")
    with pytest.raises(BadInput, match="cannot read 12 of 12 captions") as refused:
        audit(str(tmp_path), AuditOptions(score="world"))
    assert "clip=FOLDER" in refused.value.hint


def test_too_few_pairs_are_refused(tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a large red circle at the top left.")
    with pytest.raises(BadInput, match="1 pictures"):
        audit(str(tmp_path), AuditOptions(score="world"))
