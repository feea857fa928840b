"""A filtered store: what goes is counted and named, what stays is whole, and the parent is not
touched."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from fulcrum.cli import main
from fulcrum.data.caption_quality import CaptionRules
from fulcrum.data.fillers import Folder
from fulcrum.data.readers.pictures import encode, miniature, pixels
from fulcrum.data.readers.reader import Given
from fulcrum.data.stores.derived_store import FilterRules, filter_store
from fulcrum.data.stores.finish_import import (
    _colour_bounds,
    _neighbours,
    alike,
    looks,
    perceptual_hashes,
    run_import,
)
from fulcrum.data.stores.importing import Options, changes_of, ledger_lines
from fulcrum.data.stores.picture_store import PictureStore, read_about
from fulcrum.data.stores.verify import check
from fulcrum.data.world.scene import render, scenes
from fulcrum.measure import store_scores
from fulcrum.spec.errors import BadInput


def quiet(text):
    pass


def png(image):
    stream = io.BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


class Album:
    """Twenty scenes; of the first five a copy that a person would call the same; two odd captions,
    one long picture."""

    kind = "album"

    def __iter__(self):
        for number, image in enumerate(render(scenes("train", np.arange(20)), 48, "synthetic")):
            picture = Image.fromarray(image.transpose(1, 2, 0))
            text = {
                7: "I'm sorry, I can't help with that",
                8: "ein Hund und eine Katze auf dem Dach",
            }.get(number, f"a drawing of scene {number}")
            picture = picture.resize((120, 48)) if number == 9 else picture
            yield Given(
                f"scene {number}",
                png(picture),
                {"long": [text]},
                split="validation" if number == 3 else "train",
            )
            if number < 5:
                again = ImageEnhance.Brightness(
                    picture.resize((70, 70), Image.Resampling.BICUBIC)
                ).enhance(1.02)
                yield Given(
                    f"copy {number}",
                    png(again),
                    {"long": [f"a drawing of scene {number}"]},
                    split="train",
                )
        yield Given(
            "held", png(picture), {"long": ["a drawing that is held out"]}, split="reference"
        )

    def share(self):
        return 0.0


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    folder = tmp_path_factory.mktemp("album") / "store"
    run_import(Album(), folder, Options(size=48, shard=8, once=False), quiet)
    return folder


def names(folder):
    store = PictureStore(folder)
    return [store.name(row) for row in range(len(store))]


def test_a_filtered_store_is_a_store_of_its_own(album, tmp_path):
    rules = FilterRules(
        most_aspect=2.0, duplicates=6, caption="long", rules=CaptionRules(language="en")
    )
    before = read_about(album)
    about = filter_store(album, tmp_path / "left", rules, None, quiet, {})
    left = set(names(tmp_path / "left"))
    gone = set(names(album)) - left
    # Of two alike the larger stays, but never at the cost of a held-out one, nor beside it; 19 is
    # held out as "held" too.
    assert gone == {
        "scene 0",
        "scene 1",
        "scene 2",
        "copy 3",
        "scene 4",
        "scene 7",
        "scene 8",
        "scene 9",
        "scene 19",
    }
    assert check(tmp_path / "left")["faults"] == [] and read_about(album) == before
    assert about["parent"] == before["content"] and about["generator"] == "fulcrum data filter"
    ledger = json.loads((tmp_path / "left" / "ledger.json").read_text())
    assert ledger["reasons"] == {
        "alike": 6,
        "caption language": 1,
        "caption refusal": 1,
        "too long and thin": 1,
    }
    assert ledger["given"] == before["count"] and ledger["kept"] == about["count"] == len(left)
    lines = [
        json.loads(line) for line in (tmp_path / "left" / "ledger.jsonl").read_text().splitlines()
    ]
    assert {line["name"]: line["reason"] for line in lines}[
        "copy 3"
    ] == "alike: it looks like scene 3"
    kept = []
    for path in (tmp_path / "left" / "shards").iterdir():
        with tarfile.open(path) as tar:
            kept += [name for name in tar.getnames() if name.endswith(".png")]
    assert len(kept) == len(left), "the tars hold what the tables say"


def test_a_filter_changes_no_picture_and_its_ledger_says_so(album, tmp_path):
    """It booked what the import had cropped and resized as changes of its own."""
    filter_store(album, tmp_path / "left", FilterRules(most_aspect=2.0), None, quiet, {})
    parent, ledger = (
        json.loads((folder / "ledger.json").read_text()) for folder in (album, tmp_path / "left")
    )
    assert parent["changes"]["resized"] == 5 and parent["changes"]["cropped"] == 1
    assert not any(ledger["changes"].values()) and ledger["kept_changed"] == 0
    assert (
        ledger["before"] == {"resized": 5, "repeated": 1} and changes_of(ledger)["resized"] == 5
    ), "what the import did is told apart"
    assert (
        ledger_lines(ledger)[1]
        == "kept  25 as they are in the parent, whose import had 5 resized, 1 repeated"
    )
    assert Folder(path=str(tmp_path / "left")).geometry_varies(), (
        "a condition on sizes still has something to tell"
    )


def test_the_command_ends_with_one_that_trains(album, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(
            ["data", "filter", str(album), str(tmp_path / "left"), "--most-aspect", "2", "--quiet"]
        )
    assert (
        not end.value.code and "train on it: fulcrum train pocket --set" in capsys.readouterr().out
    )


def test_nobody_scores_what_will_be_refused(album, tmp_path, capsys, monkeypatch):
    """Scoring may take hours; that the target is taken is known before."""

    def scored(*asked):
        raise AssertionError("scored")

    monkeypatch.setattr(store_scores, "score_rows", scored)
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "notes.txt").write_text("mine")
    for words, said in (
        ([str(tmp_path), "--drop", "0.1"], "exists"),
        ([str(tmp_path / "other"), "--drop", "0.1"], "notes.txt"),
        ([str(tmp_path / "new")], "go together"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["data", "filter", str(album), *words, "--score", "world"])
        assert end.value.code == 2 and said in capsys.readouterr().err


def test_by_score(album, tmp_path):
    scores = np.linspace(0, 1, read_about(album)["count"])
    about = filter_store(
        album, tmp_path / "best", FilterRules(drop=0.25, caption="long"), scores, quiet, {}
    )
    train = read_about(album)["splits"]["train"]
    assert (
        about["splits"]["train"] == train - round(0.25 * train)
        and about["splits"]["reference"] == 1
    )
    assert "scene 0" not in names(tmp_path / "best")
    filter_store(
        album, tmp_path / "above", FilterRules(least_score=0.5, caption="long"), scores, quiet, {}
    )
    assert "scene 3" in names(tmp_path / "above"), "held out: it stays, whatever its score"
    scores[2] = np.nan
    with pytest.raises(BadInput, match="have no score, such as row 2"):
        filter_store(
            album, tmp_path / "no", FilterRules(drop=0.25, caption="long"), scores, quiet, {}
        )


@pytest.mark.parametrize(
    ("rules", "scores", "message"),
    [
        (FilterRules(), None, "nothing is asked for"),
        (FilterRules(duplicates=40), None, "bits from 0"),
        (FilterRules(drop=0.5), None, "go together"),
        (FilterRules(least_side=10), np.zeros(26), "go together"),
        (
            FilterRules(rules=CaptionRules(), caption="short"),
            None,
            "not every picture has a caption 'short'",
        ),
        (FilterRules(least_side=4000, held_out=True), None, "nothing would be left"),
    ],
)
def test_refusals(album, tmp_path, rules, scores, message):
    with pytest.raises(BadInput, match=message):
        filter_store(album, tmp_path / "new", rules, scores, quiet, {})
    assert not list(tmp_path.iterdir()), "and leaves nothing"


def twins(*looked, bits=6):
    """Which picture each one looks like, the first ones ranking first."""
    hashes, thumbs = (np.concatenate(parts) for parts in zip(*looked, strict=True))
    return alike(hashes, thumbs, np.arange(len(hashes)), bits)


def looked_at(pictures):
    """Of pictures (n, 3, 32, 32)."""
    return looks(pictures.transpose(0, 2, 3, 1))


def test_hashes_see_shape_and_thumbnails_colour():
    drawn = render(scenes("train", np.arange(400)), 32, "real")
    first, numbers = looked_at(drawn), np.arange(400)
    assert np.mean(twins(first) == numbers) > 0.99, "scenes that differ are not alike"
    noise = np.random.default_rng(0).integers(-3, 4, drawn.shape)
    again = looked_at(np.clip(drawn + noise, 0, 255).astype(np.uint8))
    assert np.mean(twins(first, again)[400:] == numbers) > 0.97, "a little noise changes nothing"
    brighter = looked_at(np.clip(drawn + 25.0, 0, 255).astype(np.uint8))
    assert np.mean(twins(first, brighter, bits=12)[400:] == numbers) < 0.05, (
        "another light is another picture"
    )
    swapped = looked_at(drawn[:, [2, 0, 1]])
    assert np.mean(twins(first, swapped, bits=12)[400:] == numbers) < 0.05, (
        "and so are other colours"
    )


def test_bands_find_every_pair_that_a_full_search_finds():
    draw = np.random.default_rng(1)
    hashes = draw.integers(0, 2**63, 300, dtype=np.uint64)
    for number in range(100):  # each a few bits beside another
        bits = draw.choice(64, draw.integers(1, 7), replace=False).astype(np.uint64)
        hashes[200 + number] = hashes[number] ^ np.bitwise_or.reduce(np.uint64(1) << bits)
    apart, rank = np.bitwise_count(hashes[:, None] ^ hashes[None, :]), draw.permutation(300)
    found = alike(hashes, np.zeros((300, 3), np.uint8), rank, 4)
    stays = set[int]()
    for number in np.argsort(rank).tolist():
        beside = [one for one in stays if apart[number, one] <= 4]
        assert (found[number] in beside) if beside else found[number] == number
        stays |= set() if beside else {number}
    assert 200 < len(stays) < 300


def test_no_picture_goes_because_of_a_chain():
    """a is near b and b near c: a stays, b goes, and c, which is not near a, stays."""
    hashes = np.array([0, 0b1111, 0b11111111], np.uint64)
    assert alike(hashes, np.zeros((3, 3), np.uint8), np.arange(3), 4).tolist() == [0, 0, 2]
    assert alike(hashes, np.zeros((3, 3), np.uint8), np.array([1, 0, 2]), 4).tolist() == [1, 1, 1]
    flat = perceptual_hashes(np.zeros((2, 32, 32), np.float32))
    assert flat[0] == flat[1]


@pytest.mark.parametrize("encoding", ["jpeg", "png", "raw"])
def test_a_miniature_is_the_whole_picture_made_small(encoding):
    """Of a JPEG coarse frequencies alone are decoded: the same within what its own quality
    leaves."""
    drawn = render(scenes("train", np.arange(1)), 256, "real")[0].transpose(1, 2, 0)
    data = encode(Image.fromarray(drawn), encoding, 95)
    small = miniature(data, (256, 256), 32)
    whole = pixels(data, (256, 256)).reshape(3, 32, 8, 32, 8).mean((2, 4)).transpose(1, 2, 0)
    assert small.shape == (32, 32, 3) and np.abs(small - whole).max() < 3
    wide = miniature(encode(Image.fromarray(drawn[:64]), encoding, 95), (256, 64), 32)
    assert wide.shape == (32, 32, 3), "a long picture is pressed into the square, not cut"


def test_hashes_that_meet_with_other_colours_take_no_room():
    """Sixty hashes of one neighbourhood are 1,770 pairs both ways; those of other colours are not
    kept."""
    hashes = np.uint64(1) << np.arange(60, dtype=np.uint64)
    for colours, pairs in (
        (np.zeros(60), 60 * 59),
        (np.arange(60) * 4.0, 60 * 2 - 2),
        (np.arange(60) // 2 * 8.0, 60),
    ):
        thumbs = np.repeat(colours.astype(np.uint8)[:, None], 3, axis=1)
        known, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        bounds = _colour_bounds(thumbs, group, counts)
        starts, beside = _neighbours(known, bounds, 4)
        assert len(beside) == starts[-1] == pairs
