"""The source of imported pictures: by content, not by place; captions by name and weight; the same
for any readers."""

import json
import shutil

import numpy as np
import pytest

from fulcrum.data.captions import Chooser, NamedChooser, worded_shares
from fulcrum.data.fillers import Folder, NamedCaptions
from fulcrum.data.source import order_of
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.spec.errors import BadInput


def test_samples_are_read_by_number(make, store):
    source = FolderSource(store)
    samples = source.read(np.array([4, 2]))
    assert (
        samples.images.shape == (2, 3, 16, 16)
        and samples.scenes is None
        and samples.ids.tolist() == [4, 2]
    )
    assert np.array_equal(samples.images[1], source.read(np.array([2])).images[0])
    assert np.array_equal(
        samples.images, FolderSource(store, threads=2).read(np.array([4, 2])).images
    )
    with pytest.raises(IndexError, match=f"0 to {len(source) - 1}"):
        source.read(np.array([len(source)]))
    with pytest.raises(BadInput, match="no scenes"):
        source.scenes(np.array([0]))


def test_splits_part_the_pictures(store):
    parts = [FolderSource(store, split) for split in ("train", "validation", "reference")]
    assert [len(part) for part in parts] == [32, 4, 4]
    assert len(np.unique(np.concatenate([part.numbers for part in parts]))) == 40
    assert len({part.fingerprint() for part in parts}) == 3
    filler = Folder(path=str(store)).held_out("validation", 512)
    assert (filler.split, filler.path) == ("validation", str(store))


def test_the_fingerprint_is_of_the_content_wherever_it_lies(make, store, tmp_path):
    shutil.copytree(store, tmp_path / "moved")
    assert FolderSource(store).fingerprint() == FolderSource(tmp_path / "moved").fingerprint()
    here, moved = Folder(path=str(store)), Folder(path=str(tmp_path / "moved"))
    assert (
        here.hashes() == moved.hashes()
        and here.identity() == moved.identity()
        and "path" not in here.identity()
    )
    again = make.imported(store.parent / "given", tmp_path / "again", shard=7)
    assert Folder(path=str(again)).hashes() == here.hashes(), (
        "how it is cut into shards is not content"
    )
    given = shutil.copytree(store.parent / "given", tmp_path / "given")
    (given / "0005.txt").write_text("another caption")
    other = make.imported(given, tmp_path / "other", shard=16)
    assert Folder(path=str(other)).hashes() != here.hashes(), "captions are content"
    assert FolderSource(store, size=8).fingerprint() != FolderSource(store).fingerprint()


def test_smaller_sizes_are_resized_and_larger_ones_refused(store):
    small = FolderSource(store, size=8).read(np.arange(2)).images
    full = FolderSource(store).read(np.arange(2)).images
    means = full.reshape(2, 3, 8, 2, 8, 2).mean((3, 5))
    assert small.shape == (2, 3, 8, 8) and np.abs(small - means).mean() < 6
    with pytest.raises(BadInput, match="enlarged"):
        FolderSource(store, size=32)


@pytest.fixture(scope="module")
def told(make, tmp_path_factory):
    """Thirty pictures with a long caption, two short ones, and a title for some."""
    place = tmp_path_factory.mktemp("told")
    folder = place / "given"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02d}.png").write_bytes(make.picture(number))
        captions = {"long": f"long {number}", "short": [f"one {number}", f"two {number}"]}
        captions |= {"title": "t"} if number < 5 else {}
        (folder / f"{number:02d}.json").write_text(json.dumps({"captions": captions}))
    return make.imported(folder, place / "store", hold_out=0.0)


def test_captions_by_name_and_weight(told):
    source, ids = FolderSource(told), np.arange(30)
    assert source.prompts(Chooser(("long",), (1.0,)), ids) == [f"long {n}" for n in range(30)]
    mixed = NamedCaptions(names=("long", "short"), weights=(1.0, 2.0)).build(None)
    texts = source.prompts(mixed, ids)
    kinds = [text.split()[0] for text in texts]
    assert {"long", "one", "two"} == set(kinds) and all(
        text.endswith(f" {n}") for n, text in enumerate(texts)
    )
    assert 13 <= sum(kind != "long" for kind in kinds) <= 27
    some = np.array([17, 3])
    assert source.prompts(mixed, some) == [texts[17], texts[3]], (
        "fixed by the sample, not by its batch"
    )
    assert source.styles() == ("long", "short")
    with pytest.raises(BadInput, match="'title': 5 of 30; all have: long, short"):
        source.prompts(NamedChooser(("title",)), ids)
    with pytest.raises(BadInput, match="no pictures of the split 'validation'"):
        FolderSource(told, "validation")
    assert worded_shares(source, ids, [f"long {n}" for n in range(30)]) == {
        "long": 1.0,
        "medium": 0.0,
        "short": 0.0,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"names": ()},
        {"names": ("a", "a")},
        {"names": ("a",), "weights": (1.0, 2.0)},
        {"names": ("a",), "weights": (0.0,)},
    ],
)
def test_names_that_cannot_be_chosen_from(change):
    with pytest.raises(ValueError, match="names|twice|at least"):
        NamedCaptions(**change)


def test_another_process_reads_the_same(store, elsewhere):
    source = FolderSource(store)
    for position in range(24, 96, 12):
        ids = order_of(source, 3, position, 12)
        assert len(ids) == 12, "never a shrunken batch"
        assert np.array_equal(elsewhere(source.read, ids).images, source.read(ids).images)
        assert elsewhere(source.prompts, Chooser(), ids) == source.prompts(Chooser(), ids)


def test_a_damaged_picture_stops_the_reading(store, tmp_path):
    copy = shutil.copytree(store, tmp_path / "copy")
    shard = sorted((copy / "shards").iterdir())[1]
    shard.write_bytes(shard.read_bytes()[:3000])
    source = FolderSource(copy)
    with pytest.raises(Exception, match="is cut off"):
        source.read(order_of(source, 0, 0, 40))
