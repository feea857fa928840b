"""Buckets: every batch whole and of one shape, its samples a function of the position; what is held
out is square."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fulcrum.data.buckets import BucketSource, open_pictures
from fulcrum.data.captions import Chooser
from fulcrum.data.fillers import Folder, Mix
from fulcrum.data.mix import MixSource, one_shaped
from fulcrum.data.source import order_of
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.picture_store import LEDGER, PictureStore
from fulcrum.data.stores.verify import check
from fulcrum.spec.errors import BadInput
from fulcrum.spec.slots import DataContext

# of the given pictures, how many of each
SHAPES = {(48, 32): 60, (32, 48): 25, (40, 40): 30, (33, 60): 3}


@pytest.fixture(scope="module")
def given(make, tmp_path_factory):
    folder, first = tmp_path_factory.mktemp("shapes") / "given", 0
    for size, count in SHAPES.items():
        make.folder(folder, count, size, first)
        first += count
    return folder


@pytest.fixture(scope="module")
def shaped(make, given):
    return make.imported(given, given.parent / "store", size=32, buckets=True, hold_out=0.0)


def ctx(size=32, batch=8, unit=8, say=None):
    run = SimpleNamespace(
        data=SimpleNamespace(size=size),
        budget=SimpleNamespace(batch=batch),
        model=SimpleNamespace(patch=1),
        encode=SimpleNamespace(codec=SimpleNamespace(stride=unit), teachers=()),
    )
    return DataContext(run, say=say)


def source(store, batch=8):
    return BucketSource(store, "train", None, None, batch)


def owner(buckets, ids):
    return np.searchsorted(buckets.starts, ids, side="right") - 1


def test_every_batch_is_whole_and_of_one_shape(shaped):
    buckets = source(shaped)
    assert {one.shape: len(one) for one in buckets.sources} == {
        (40, 24): 60,
        (24, 40): 28,
        (32, 32): 30,
    }
    seen = set()
    for position in range(0, 160, 8):
        batch = buckets.read(order_of(buckets, 5, position, 8))
        (number,) = set(owner(buckets, batch.ids))
        width, height = buckets.sources[number].shape
        assert (
            batch.images.shape == (8, 3, height, width)
            and len(buckets.prompts(Chooser(), batch.ids)) == 8
        )
        one = buckets.sources[number].read(batch.ids - buckets.starts[number]).images
        assert np.array_equal(batch.images, one)
        seen.add(number)
    assert seen == {0, 1, 2}
    with pytest.raises(ValueError, match="two shapes"):
        buckets.read(np.array([0, len(buckets) - 1]))


def test_any_cut_of_any_batch_gives_the_same_samples(shaped):
    buckets = source(shaped)
    whole = order_of(buckets, 3, 0, 400)
    for cut in (1, 3, 8, 50):
        pieces = [order_of(buckets, 3, at, min(cut, 400 - at)) for at in range(0, 400, cut)]
        assert np.array_equal(np.concatenate(pieces), whole)
    assert not np.array_equal(order_of(buckets, 4, 0, 400), whole)
    assert np.array_equal(order_of(source(shaped), 3, 200, 77), whole[200:277]), (
        "nothing is remembered"
    )


def test_nothing_is_dropped_and_no_picture_is_seen_more_often(shaped):
    """Shares hold after every block of batches; within its shape each picture comes once before any
    comes again."""
    buckets = source(shaped)
    images = 118 * 128  # 118 pictures; blocks of 128 batches
    order = order_of(buckets, 0, 0, images)
    seen = np.bincount(order, minlength=len(buckets))
    assert seen.sum() == images and abs(seen - images / 118).max() <= 2
    for number, one in enumerate(buckets.sources):
        mine = order[owner(buckets, order) == number] - buckets.starts[number]
        for first in range(0, len(mine) - len(one), len(one)):
            assert len(np.unique(mine[first : first + len(one)])) == len(one)
    batches = owner(buckets, order[::8])
    runs = np.flatnonzero(np.diff(batches)) + 1
    assert np.diff(runs).max() > 3, "shapes follow each other at random, not in turns"


def test_a_shape_too_rare_for_a_batch_is_repeated_and_named(shaped):
    buckets = source(shaped, batch=29)
    positions = range(0, 29 * 200, 29)
    rare = next(
        ids
        for ids in (order_of(buckets, 0, at, 29) for at in positions)
        if owner(buckets, ids)[0] == 0
    )
    assert len(rare) == 29 and len(np.unique(rare)) == 28
    assert (
        "repeated" in buckets.shapes_in_words()
        and "24 x 40 (28)" in buckets.shapes_in_words()
        and "40 x 24" not in buckets.shapes_in_words()
    )
    assert "repeated" not in source(shaped).shapes_in_words()
    lines = []
    Folder(path=str(shaped)).build(ctx(batch=29, say=lines.append))
    assert lines == [buckets.shapes_in_words()]


def test_another_process_reads_the_same(shaped, elsewhere):
    buckets = source(shaped)
    for position in range(24, 72, 8):
        ids = order_of(buckets, 3, position, 8)
        assert np.array_equal(elsewhere(buckets.read, ids).images, buckets.read(ids).images)
        assert elsewhere(buckets.prompts, Chooser(), ids) == buckets.prompts(Chooser(), ids)


def test_what_is_held_out_is_square_and_the_ledger_says_so(make, given, tmp_path):
    to = make.imported(given, tmp_path / "store", size=32, buckets=True, hold_out=0.15)
    ledger, store = json.loads((to / LEDGER).read_text()), PictureStore(to)
    assert check(to)["sound"] and ledger["given"] == ledger["kept"] == 118 == sum(
        store.about["splits"].values()
    )
    held = {split: FolderSource(to, split) for split in ("validation", "reference")}
    for one in held.values():
        assert 4 <= len(one) <= 40 and one.read(np.arange(len(one))).images.shape[1:] == (3, 32, 32)
    train = open_pictures(str(to), "train", 32, None, 8, 8)
    assert len(train) + sum(map(len, held.values())) == 118 and len(one_shaped(train)) == 3
    squares = next(part for part in train.sources if part.shape == (32, 32))
    assert len(squares) + sum(map(len, held.values())) == ledger["buckets"]["32x32"]["kept"]
    again = make.imported(given, tmp_path / "again", size=32, buckets=True, hold_out=0.15, shard=7)
    assert PictureStore(again).about["content"] == store.about["content"]
    judged = Folder(path=str(to)).held_out("train", 500).build(ctx())
    assert len(judged) == len(squares) and judged.shape == (32, 32)
    with pytest.raises(BadInput, match="several shapes"):
        FolderSource(to, "train")


def test_groups_copies_and_wishes_hold_with_buckets_too(make, tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    for number in range(60):
        about = (
            {"caption": "x", "group": f"g{number // 6}"}
            if number < 48
            else {"caption": "x", "split": "test"}
        )
        (folder / f"{number:02d}.png").write_bytes(
            make.picture(number, [(48, 32), (32, 48)][number % 2])
        )
        (folder / f"{number:02d}.json").write_text(json.dumps(about))
        if number in (40, 41):
            (folder / f"{number}copy.png").write_bytes(
                make.picture(number, [(48, 32), (32, 48)][number % 2])
            )
            (folder / f"{number}copy.json").write_text(json.dumps(about))
    store = PictureStore(
        make.imported(folder, tmp_path / "store", size=32, buckets=True, hold_out=0.2)
    )
    splits = {store.name(row): int(store.rows[row]["split"]) for row in range(len(store))}
    assert all(splits[f"{number:02d}.png"] == 2 for number in range(48, 60))
    for group in range(8):
        assert len({splits[f"{number:02d}.png"] for number in range(6 * group, 6 * group + 6)}) == 1
    assert splits["40.png"] == splits["40copy.png"] and splits["41.png"] == splits["41copy.png"]
    square = store.buckets.index((32, 32))
    assert all(
        (store.rows[row]["bucket"] == square) == (store.rows[row]["split"] > 0)
        for row in range(len(store))
    )


def test_shapes_must_be_whole_tokens_and_a_step_makes_them_so(make, given, shaped, tmp_path):
    with pytest.raises(BadInput, match="multiples of 16") as error:
        Folder(path=str(shaped)).build(ctx(unit=16))
    assert "--bucket-step 16" in error.value.hint
    with pytest.raises(BadInput, match="12 x 20 at data.size 16.*multiples of 8"):
        Folder(path=str(shaped)).build(ctx(size=16))
    half = Folder(path=str(shaped)).build(ctx(size=16, unit=4))
    assert {one.shape for one in half.sources} == {(12, 20), (16, 16), (20, 12)}
    assert half.sources[0].read(np.arange(2)).images.shape == (2, 3, 20, 12)
    coarse = make.imported(
        given, tmp_path / "coarse", size=32, buckets=True, bucket_step=16, hold_out=0.0
    )
    shapes = {part.shape for part in one_shaped(Folder(path=str(coarse)).build(ctx(unit=16)))}
    assert all(w % 16 == 0 == h % 16 for w, h in shapes)
    with pytest.raises(BadInput, match="must divide --size 32"):
        make.imported(given, tmp_path / "odd", size=32, buckets=True, bucket_step=12)
    with pytest.raises(BadInput, match="belongs to --buckets"):
        make.imported(given, tmp_path / "odd", size=32, bucket_step=16)


def test_a_mix_deals_whole_batches_where_a_source_has_shapes(make, shaped, tmp_path):
    square = make.imported(
        make.folder(tmp_path / "given", 20, (40, 40), 500),
        tmp_path / "square",
        size=32,
        hold_out=0.0,
    )
    filler = Mix(paths=(str(shaped), str(square)), weights=(3.0, 1.0))
    mix = filler.build(ctx())
    assert mix.unit == 8 and len(one_shaped(mix)) == 4 and len(mix) == 138
    order = order_of(mix, 1, 0, 8 * 128)
    assert np.array_equal(
        np.concatenate([order_of(mix, 1, at, 4) for at in range(0, 8 * 128, 4)]), order
    )
    assert (order >= 118).sum() == 8 * 32, "a quarter of the batches, exactly"
    for at in range(0, 8 * 128, 64):
        assert len(mix.read(order[at : at + 8]).images) == 8
    plain = Mix(paths=(str(square), str(square)), weights=(1.0, 1.0)).build(ctx())
    assert plain.unit == 1 and isinstance(plain, MixSource) and one_shaped(plain) == [plain]


def test_the_fingerprint_knows_shapes_and_size(shaped):
    one, other = source(shaped), BucketSource(shaped, "train", None, 90, 8)
    assert one.fingerprint() == source(shaped, batch=16).fingerprint() != other.fingerprint()
    assert len({part.fingerprint() for part in one.sources}) == 3
