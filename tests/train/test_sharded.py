"""Checkpoints in pieces, without other processes: what is written comes back, rows of several files
find their place."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.checkpoint import Checkpoint, RowSpan, State, rows_of, write_tensors
from fulcrum.training.sharded_checkpoint import RowWriter, flat, load_sharded, save_sharded

pytestmark = pytest.mark.filterwarnings("ignore")  # torch says that there are no other processes


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
    return all(torch.equal(value, flat(other)[name]) for name, value in flat(one).items())


def saved(folder, given, images=16):
    save_sharded(folder, Checkpoint(given, "k" * 16, State(images), System()), flat(given), None)
    return checkpoint.verified(checkpoint.place(folder, images))


def test_what_is_written_comes_back_in_place(tmp_path):
    found = saved(tmp_path, parts())
    assert (
        found.files == tuple(f"{part}-00001-of-00001" for part in sorted(checkpoint.PARTS))
        and found.state.images == 16
    )
    live = parts(seed=1)
    assert not equal(live, parts())
    load_sharded(found, live)
    assert equal(live, parts()) and equal(checkpoint.read(found).parts, parts())


def test_what_was_copied_is_written_and_not_what_it_has_become(tmp_path):
    live, copied = parts(seed=1), flat(parts())
    save_sharded(tmp_path, Checkpoint(live, "k" * 16, State(8), System()), copied, None)
    assert equal(checkpoint.load(checkpoint.place(tmp_path, 8)).parts, parts())


def test_older_ones_are_thinned(tmp_path):
    for images in (8, 16, 24, 32):
        saved(tmp_path, parts(), images)
    assert [int(path.name) for path in checkpoint.listing(tmp_path)] == [24, 32]


def in_pieces(folder, given, cut):
    """The same checkpoint as two processes write it: the rows of `a` and `m` before and behind the
    cut."""
    aside = checkpoint.place(folder, 16)
    aside.mkdir(parents=True)
    files = {}
    for part, tensors in given.items():
        for number, rows in ((1, slice(0, cut)), (2, slice(cut, None))):
            cuts = {name: value[rows] for name, value in tensors.items() if value.dim() == 2}
            spans = {name: RowSpan(rows.start or 0, len(tensors[name])) for name in cuts}
            whole = (
                {name: value for name, value in tensors.items() if value.dim() != 2}
                if number == 1
                else {}
            )
            file = f"{part}-{number:05d}-of-00002"
            files[file] = write_tensors(aside / f"{file}.safetensors", {**cuts, **whole}, spans)
    checkpoint.write_state(aside, Checkpoint(given, "k" * 16, State(16), System()), files)
    return checkpoint.verified(aside)


@pytest.mark.parametrize("cut", [1, 3])
def test_rows_of_several_files_find_their_place(tmp_path, cut):
    found, live = in_pieces(tmp_path, parts(), cut), parts(seed=1)
    load_sharded(found, live)
    assert equal(live, parts()) and equal(checkpoint.read(found).parts, parts())
    checkpoint.require_same(found, live)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda tensors: tensors.pop("a"),
            r"0 tensors missing \[\], 1 unknown \['model/a'\], 0 of another",
        ),
        (
            lambda tensors: tensors.update(d=torch.zeros(2)),
            r"1 tensors missing \['model/d'\], 0 unknown \[\], 0 of another",
        ),
        (
            lambda tensors: tensors.update(a=torch.zeros(5, 4)),
            r"0 unknown \[\], 1 of another shape or type \['model/a'\]",
        ),
        (
            lambda tensors: tensors.update(a=torch.zeros(5, 3).half()),
            r"1 of another shape or type \['model/a'\]",
        ),
    ],
)
def test_other_tensors_than_the_runs_are_refused_and_nothing_is_filled(tmp_path, change, says):
    found, live = saved(tmp_path, parts()), parts(seed=1)
    change(live["model"])
    with pytest.raises(BadInput, match=says):
        load_sharded(found, live)
    assert torch.equal(live["optimizer"]["m"], parts(seed=1)["optimizer"]["m"])


def item(name, value, offset, shape):
    about = SimpleNamespace(
        chunk=SimpleNamespace(sizes=value.shape, offsets=(offset, 0)), size=torch.Size(shape)
    )
    return SimpleNamespace(
        index=SimpleNamespace(fqn=f"model/{name}"), value=value, tensor_data=about
    )


@pytest.mark.parametrize("first", [True, False])
def test_a_process_writes_its_rows_where_there_are_any(tmp_path, first):
    """Rows 2 to 4 of a, all of b, and none of c, of which there are fewer rows than processes."""
    assert RowWriter(tmp_path, None).first is False, "until it is told"
    writer = RowWriter(tmp_path, None)
    writer.set_up_storage_writer(first)
    items = [
        item("a", torch.ones(2, 3), 2, (5, 3)),
        item("b", torch.zeros(2, 2), 0, (2, 2)),
        item("c", torch.zeros(0, 3), 1, (1, 3)),
    ]
    plan = SimpleNamespace(storage_data=(str(tmp_path), "00002-of-00003"), items=items)
    results = writer.write_data(plan, SimpleNamespace(resolve_data=lambda one: one.value)).value()
    written = {path.name for path in tmp_path.iterdir()}
    names = [f"{part}-00002-of-00003" for part in (checkpoint.PARTS if first else ("model",))]
    assert (
        written
        == {f"{name}.safetensors" for name in names}
        == {f"{one.storage_data[0]}.safetensors" for one in results}
    )
    path = tmp_path / "model-00002-of-00003.safetensors"
    held = load_file(path)
    assert held.keys() == {"a", "b"} and torch.equal(held["a"], torch.ones(2, 3))
    with checkpoint.safe_open(path, framework="pt") as stream:
        assert rows_of(stream.metadata()) == {"a": RowSpan(2, 5)}
