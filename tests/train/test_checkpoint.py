"""Checkpoints of tensors: what is written comes back, rows of several files find their place."""

import pytest
import torch

from fulcrum.files.paths import Damaged
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.checkpoint import (
    Checkpoint,
    RowSpan,
    State,
    load_into,
    own_rows,
    write_tensors,
)
from fulcrum.training.dist.ranks import Ranks


def parts(seed=0):
    made = torch.Generator().manual_seed(seed)
    model = {"a": torch.randn(5, 3, generator=made), "b/c": torch.randn(4, generator=made)}
    model["one"] = torch.tensor(seed + 2.0)
    return {
        "model": model,
        "optimizer": {"m": torch.randn(5, 3, generator=made).bfloat16()},
        "average": {},
    }


def equal(one, other):
    return all(
        torch.equal(value, other[part][name])
        for part, tensors in one.items()
        for name, value in tensors.items()
    )


def saved(folder, given, images=16):
    checkpoint.save(folder, Checkpoint(given, "k" * 16, State(images), System()))
    return checkpoint.verified(checkpoint.place(folder, images))


def test_what_is_written_comes_back_in_place(tmp_path):
    found = saved(tmp_path, parts())
    assert found.files == tuple(sorted(checkpoint.PARTS)) and found.state.images == 16
    live = parts(seed=1)
    assert not equal(live, parts())
    load_into(found, live)
    assert equal(live, parts()) and equal(checkpoint.read(found).parts, parts())


def test_older_ones_are_thinned(tmp_path):
    for images in (8, 16, 24, 32):
        saved(tmp_path, parts(), images)
    assert [int(path.name) for path in checkpoint.listing(tmp_path)] == [24, 32]


def in_pieces(folder, given, *cuts):
    """The same checkpoint as two processes write it: rows of `a` and `m` up to the first cut, and
    from the last one."""
    aside = checkpoint.place(folder, 16)
    aside.mkdir(parents=True)
    files = {}
    for part, tensors in given.items():
        for number, rows in ((1, slice(0, cuts[0])), (2, slice(cuts[-1], None))):
            held = {name: value[rows] for name, value in tensors.items() if value.dim() == 2}
            spans = {name: RowSpan(rows.start or 0, len(tensors[name])) for name in held}
            whole = (
                {name: value for name, value in tensors.items() if value.dim() != 2}
                if number == 1
                else {}
            )
            file = f"{part}-{number:05d}-of-00002"
            files[file] = write_tensors(aside / f"{file}.safetensors", {**held, **whole}, spans)
    checkpoint.write_state(aside, Checkpoint(given, "k" * 16, State(16), System()), files)
    return checkpoint.verified(aside)


@pytest.mark.parametrize("cut", [1, 3])
def test_rows_of_several_files_find_their_place(tmp_path, cut):
    found, live = in_pieces(tmp_path, parts(), cut), parts(seed=1)
    load_into(found, live)
    assert equal(live, parts()) and equal(checkpoint.read(found).parts, parts())
    checkpoint.require_same(found, live)


@pytest.mark.parametrize("cuts", [(1, 3), (3, 1)])
def test_rows_that_no_file_holds_or_two_hold_are_refused(tmp_path, cuts):
    found = in_pieces(tmp_path, parts(), *cuts)
    for refused in (checkpoint.read, lambda found: checkpoint.require_same(found, parts())):
        with pytest.raises(Damaged, match="lacks rows of 'a', or has some twice"):
            refused(found)


def test_a_file_that_is_gone_is_refused(tmp_path):
    found, live = in_pieces(tmp_path, parts(), 1), parts(seed=1)
    (found.path / "optimizer-00002-of-00002.safetensors").unlink()
    for refused in (
        lambda: checkpoint.verified(found.path),
        lambda: checkpoint.read(found),
        lambda: checkpoint.require_same(found, live),
        lambda: load_into(found, live),
    ):
        with pytest.raises(Damaged, match="cannot be read.*optimizer-00002"):
            refused()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("a"), r"model, it lacks \[\] and has \['a'\]"),
        (lambda tensors: tensors.update(d=torch.zeros(2)), r"it lacks \['d'\] and has \[\]"),
        (
            lambda tensors: tensors.update(a=torch.zeros(5, 4)),
            r"a is F32 \[5, 3\], expected F32 \[5, 4\]",
        ),
        (
            lambda tensors: tensors.update(a=torch.zeros(5, 3).half()),
            r"a is F32 \[5, 3\], expected F16 \[5, 3\]",
        ),
    ],
)
@pytest.mark.parametrize("write", [saved, lambda *given: in_pieces(*given, 2)])
def test_other_tensors_than_the_runs_are_refused(tmp_path, write, change, says):
    found, live = write(tmp_path, parts()), parts(seed=1)
    change(live["model"])
    with pytest.raises(Damaged, match=says):
        checkpoint.require_same(found, live)


def test_one_process_writes_all():
    tensors, rows = own_rows(parts())
    assert equal(parts(), tensors) and not any(rows.values())


@pytest.mark.parametrize("size", [2, 3])
def test_what_all_processes_hold_is_dealt_to_them_evenly(size):
    live = {"model": {f"w{n}": torch.zeros(4, n + 1) for n in range(3 * size)}}
    dealt = [own_rows(live, Ranks(rank, size)) for rank in range(size)]
    names = [name for tensors, _ in dealt for name in tensors["model"]]
    assert sorted(names) == sorted(live["model"]) and not any(rows["model"] for _, rows in dealt)
    sizes = [sum(map(torch.numel, tensors["model"].values())) for tensors, _ in dealt]
    assert max(sizes) - min(sizes) <= 4 * 3 * (size - 1)
