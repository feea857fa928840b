"""Files of a run that are damaged or planted: set aside or refused in words, and the run goes on
from what is good."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from fulcrum.files.sealed import sealed, sha256_file
from fulcrum.measure.preview import train_run
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.run_folder import RunFolder, claim, in_use
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights


def order(run, out):
    return Order(run=run, out=out, seed=0, phrase="spark", system=System(), quiet=True)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """Where a run was trained in one go, and the hash of its weights."""
    out = tmp_path_factory.mktemp("whole")
    return out, perform(order(tiny(), out), lambda text: None)["weights_sha256"]


@pytest.fixture(scope="module")
def killed(whole, tiny, tmp_path_factory, lose):
    """Where a run was killed half-way; only copied."""
    out = tmp_path_factory.mktemp("killed")
    shutil.copytree(whole[0] / "cache", out / "cache")
    lose(order(tiny(), out), 40)
    return out


@pytest.fixture
def lost(killed, tiny, tmp_path):
    """A run that was killed half-way, with two checkpoints, to be damaged."""
    shutil.copytree(killed, tmp_path, symlinks=True, dirs_exist_ok=True)
    folder = RunFolder(tmp_path / key(tiny(), 0))
    assert len(checkpoint.listing(folder.checkpoints)) == 2
    return folder


def plant(path, kind, elsewhere):
    """Put a link, a pipe or a folder where a plain file belongs."""
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


KINDS = ("link", "pipe", "folder")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_lock_is_refused_and_empties_nothing(lost, tiny, tmp_path, kind):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    plant(lost.path / "lock", kind, precious)
    with (
        pytest.raises(RunFailed, match=f"lock cannot be opened: (it is a {kind}|Is a directory)"),
        claim(lost),
    ):
        pass
    with pytest.raises(RunFailed, match="lock cannot be opened"):
        perform(order(tiny(), tmp_path), lambda text: None)
    assert not in_use(lost) and precious.read_text() == "mine"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["record.jsonl", "record.steps"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_record_is_set_aside_and_the_run_goes_on(whole, lost, tiny, tmp_path, kind, name):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    plant(lost.path / name, kind, precious)
    said = []
    result = perform(order(tiny(), tmp_path), said.append)
    assert result["weights_sha256"] == whole[1] and precious.read_text() == "mine"
    assert (lost.path / f"damaged-{name}").exists() and (lost.path / name).is_file()
    assert not (lost.path / name).is_symlink()
    assert name == "record.steps" or any(
        f"it is a {kind}" in line and "set aside" in line for line in said
    )


def test_bad_bytes_in_the_record_cost_one_line(whole, lost, tiny, tmp_path):
    good = lost.record.read_bytes()
    bad = [
        b'{"images": 8, "loss": \xff}',
        b"[" * 200_000,
        b'{"images": "eight"}',
        b'{"images": [8]}',
        b"8",
    ]
    lost.record.write_bytes(b"\n".join(bad) + b"\n" + good + b'{"images": 16, "lo')
    said = []
    assert perform(order(tiny(), tmp_path), said.append)["weights_sha256"] == whole[1]
    assert any("line 1 of" in line and "record.jsonl cannot be read" in line for line in said)
    lines = [json.loads(line) for line in lost.record.read_text().splitlines()]
    assert lines[: len(good.splitlines())] == [json.loads(line) for line in good.splitlines()]
    assert [line["images"] for line in lines] == sorted({line["images"] for line in lines})


def changed(about, **fields):
    return json.dumps(sealed({**about, **fields}))


STATES = {
    "brackets": lambda about: "[" * 200_000,
    "nested": lambda about: '{"a": ' * 100_000 + "1" + "}" * 100_000,
    "bad bytes": lambda about: b"\xff\xfe",
    "a list": lambda about: "[1, 2]",
    "nothing": lambda about: "",
    "state of wrong type": lambda about: changed(about, state=[]),
    "images in words": lambda about: changed(about, state={**about["state"], "images": "many"}),
    "an unknown field": lambda about: changed(about, state={**about["state"], "shoes": 2}),
    "system of wrong type": lambda about: changed(about, system={"threads": "all"}),
    "no system": lambda about: json.dumps(
        sealed({name: about[name] for name in about if name not in ("system", "check")})
    ),
    "files of wrong type": lambda about: changed(about, files=["model"]),
    "files elsewhere": lambda about: changed(
        about, files={**about["files"], "../../../cache": "0" * 64}
    ),
    "files missing": lambda about: changed(about, files={}),
    "images below zero": lambda about: changed(
        about, state={**about["state"], "images": -16}, images=-16
    ),
    "images of another": lambda about: changed(
        about, state={**about["state"], "images": 8}, images=8
    ),
    "skipped below zero": lambda about: changed(about, state={**about["state"], "skipped": -1}),
    "endless seconds": lambda about: changed(
        about, state={**about["state"], "seconds": float("inf")}
    ),
    "more skipped than seen": lambda about: changed(
        about, state={**about["state"], "skipped": 10**400}
    ),
    "longer than any": lambda about: b" " * (checkpoint.MOST_STATE + 1),
    "not sealed": lambda about: json.dumps({**about, "images": 7}),
}


@pytest.mark.parametrize("name", STATES)
def test_a_damaged_state_is_set_aside_and_the_older_checkpoint_used(lost, name):
    older, newer = checkpoint.listing(lost.checkpoints)
    content = STATES[name](json.loads((newer / "state.json").read_text()))
    (newer / "state.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RunFailed, match=newer.name):
        trained_weights(lost)
    said = []
    saved = checkpoint.newest(lost.checkpoints, said.append)
    assert saved is not None and saved.state.images == int(older.name)
    assert f"set aside as damaged-{newer.name}, going on" in said[0] and len(said[0]) < 600
    assert (lost.checkpoints / f"damaged-{newer.name}" / "state.json").exists()


def test_a_checkpoint_in_the_middle_of_a_batch_is_set_aside(whole, lost, tiny, tmp_path):
    newer = checkpoint.listing(lost.checkpoints)[-1]
    about = json.loads((newer / "state.json").read_text())
    images = about["images"] - 1
    (newer / "state.json").write_text(
        changed(about, state={**about["state"], "images": images}, images=images)
    )
    newer.rename(newer.with_name(f"{images:012d}"))
    said = []
    assert perform(order(tiny(), tmp_path), said.append)["weights_sha256"] == whole[1]
    assert any("in the middle of a batch" in line and "set aside" in line for line in said)


def change_tensors(folder, part, change):
    """Give a checkpoint other tensors, with checksums that fit: only the run can tell."""
    path = folder / f"{part}.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    about = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(
        changed(about, files={**about["files"], part: sha256_file(path)})
    )


def cut_short(tensors):
    name = next(name for name in sorted(tensors) if tensors[name].dim() > 1)
    tensors[name] = tensors[name][:1].clone()


def in_another_type(tensors):
    name = next(name for name in sorted(tensors) if tensors[name].is_floating_point())
    tensors[name] = tensors[name].half()


TENSORS = {
    "one is missing": lambda tensors: tensors.pop(max(tensors)),
    "none are left": lambda tensors: tensors.clear(),
    "one is of nobody": lambda tensors: tensors.update(nobody=torch.zeros(3)),
    "one is cut": cut_short,
    "one is of another type": in_another_type,
}


@pytest.mark.parametrize("part", ["model", "optimizer", "average"])
@pytest.mark.parametrize("name", TENSORS)
def test_a_checkpoint_with_other_tensors_is_set_aside_and_the_older_one_gives_the_same_run(
    averaged, part, name, tmp_path
):
    weights, run, folder = averaged(tmp_path)
    newer = checkpoint.listing(folder.checkpoints)[-1]
    change_tensors(newer, part, TENSORS[name])
    said = []
    assert perform(order(run, tmp_path), said.append)["weights_sha256"] == weights
    assert any(
        f"does not fit this run: of its {part}" in line and f"damaged-{newer.name}, going" in line
        for line in said
    )


@pytest.mark.parametrize(
    "rows",
    [
        "[" * 100_000,
        "5",
        "null",
        '{"NAME": 5}',
        '{"NAME": [[], 2]}',
        '{"NAME": [0, Infinity]}',
        '{"NAME": [-5, ROWS]}',
    ]
    + ['{"NAME": [1, ROWS]}', '{"NAME": [0, 2000000]}'],
    ids=range(9),
)
def test_a_checkpoint_whose_header_says_other_things_of_its_rows_is_set_aside(lost, rows):
    """With checksums that fit. The older one is good: nothing of the newer may end the run."""
    older, newer = checkpoint.listing(lost.checkpoints)
    path = newer / "model.safetensors"
    tensors, about = load_file(path), json.loads((newer / "state.json").read_text())
    name = max(tensors, key=lambda one: tensors[one].dim())
    save_file(
        tensors,
        path,
        metadata={"rows": rows.replace("NAME", name).replace("ROWS", str(len(tensors[name])))},
    )
    (newer / "state.json").write_text(
        changed(about, files={**about["files"], "model": sha256_file(path)})
    )
    with pytest.raises(RunFailed, match=newer.name):
        checkpoint.load(newer)
    live, said = checkpoint.load(older).parts, []
    found = checkpoint.newest(
        lost.checkpoints, said.append, require=lambda one: checkpoint.require_same(one, live)
    )
    assert (
        found is not None
        and found.path == older
        and f"set aside as damaged-{newer.name}" in said[0]
    )


@pytest.fixture(scope="module")
def averaged(tiny, tmp_path_factory, lose):
    """A run with an average: copies of it as it was lost half-way, and the hash of the weights that
    it ends with."""
    out = tmp_path_factory.mktemp("averaged")
    run = tiny("spark + ema(every=2)")
    lose(order(run, out), 40)
    shutil.copytree(out, out.with_name("as_lost"))
    weights = perform(order(run, out), lambda text: None)["weights_sha256"]

    def copy(to):
        shutil.copytree(out.with_name("as_lost"), to, dirs_exist_ok=True)
        return weights, run, RunFolder(to / key(run, 0))

    return copy


def test_a_checkpoint_of_another_run_is_set_aside(whole, lost, tiny, tmp_path):
    newer = checkpoint.listing(lost.checkpoints)[-1]
    about = json.loads((newer / "state.json").read_text())
    (newer / "state.json").write_text(changed(about, key="0" * 16))
    said = []
    assert perform(order(tiny(), tmp_path), said.append)["weights_sha256"] == whole[1]
    assert any(f"belongs to the run {'0' * 16}" in line and "set aside" in line for line in said)


def test_a_folder_that_is_called_by_another_kind_of_digit_is_no_checkpoint(
    whole, lost, tiny, tmp_path
):
    shutil.copytree(checkpoint.listing(lost.checkpoints)[-1], lost.checkpoints / "²")
    assert perform(order(tiny(), tmp_path), lambda text: None)["weights_sha256"] == whole[1]


@pytest.mark.parametrize("about", [{}, {"run": None}, {"key": "k", "seed": 0}])
def test_a_description_without_a_run_is_refused(tmp_path, about):
    (tmp_path / "about.json").write_text(json.dumps(about))
    with pytest.raises(BadInput, match=r"about.json is not the description of a run"):
        RunFolder(tmp_path).about()


@pytest.mark.parametrize("name", ["run", "phrase", "images_per_second", "weights_sha256"])
def test_a_result_that_lacks_what_is_read_of_it_is_refused(whole, tiny, tmp_path, name):
    result = json.loads((whole[0] / key(tiny(), 0) / "result.json").read_text())
    for changed_result in (
        {**result, name: None},
        {field: result[field] for field in result if field != name},
    ):
        (tmp_path / "result.json").write_text(json.dumps(changed_result))
        with pytest.raises(BadInput, match=r"result.json is not the result of a run"):
            RunFolder(tmp_path).result()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_stands_in_the_way_of_previews_and_cost_leaves_the_run_trained(
    whole, lost, tiny, tmp_path, kind
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "file":
        (lost.path / "previews").write_text("mine")
    elif kind == "link":
        (lost.path / "previews").symlink_to(elsewhere, target_is_directory=True)
    else:
        (lost.path / "cost.json").mkdir()
    said = []
    result, _ = train_run(order(tiny(), tmp_path), said.append)
    assert (
        result["weights_sha256"] == whole[1]
        and lost.result() == result
        and not any(elsewhere.iterdir())
    )
    assert any(
        f"{'cost.json' if kind == 'folder' else 'previews'}" in line and "cannot write" in line
        for line in said
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["state.json", "model.safetensors"])
def test_a_planted_file_in_a_checkpoint_sets_it_aside(lost, tmp_path, kind, name):
    older, newer = checkpoint.listing(lost.checkpoints)
    (tmp_path / "other").write_text("{}")
    plant(newer / name, kind, tmp_path / "other")
    said = []
    assert checkpoint.newest(lost.checkpoints, said.append).state.images == int(older.name)
    assert newer.name in said[0]


def test_a_checkpoint_that_is_a_link_is_set_aside(whole, lost, tiny, tmp_path):
    older, newer = checkpoint.listing(lost.checkpoints)
    newer.rename(tmp_path / "moved")
    newer.symlink_to(tmp_path / "moved", target_is_directory=True)
    said = []
    assert perform(order(tiny(), tmp_path), said.append)["weights_sha256"] == whole[1]
    assert any("is a link" in line and "set aside" in line for line in said)
    assert (tmp_path / "moved" / "state.json").is_file()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_checkpoints_that_are_no_folder_are_refused(lost, tiny, tmp_path, kind):
    lost.checkpoints.rename(tmp_path / "moved")
    if kind == "file":
        lost.checkpoints.write_text("")
    else:
        plant(lost.checkpoints, kind, tmp_path / "moved")
    with pytest.raises(RunFailed, match="a link|no folder"):
        perform(order(tiny(), tmp_path), lambda text: None)
    assert len(checkpoint.listing(tmp_path / "moved")) == 2


@pytest.mark.parametrize("part", ["model", "optimizer"])
@pytest.mark.parametrize("place", [0.3, 1.0])
def test_one_flipped_bit_in_the_numbers_sets_a_checkpoint_aside(
    whole, lost, tiny, tmp_path, part, place
):
    """Size and header are as they were: nothing but the checksum can tell."""
    newer = checkpoint.listing(lost.checkpoints)[-1]
    content = bytearray((newer / f"{part}.safetensors").read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    content[begin + int(place * (len(content) - begin - 1))] ^= 1
    (newer / f"{part}.safetensors").write_bytes(content)
    said = []
    assert perform(order(tiny(), tmp_path), said.append)["weights_sha256"] == whole[1]
    assert any(
        f"{part}.safetensors is damaged: checksum" in line and "set aside" in line for line in said
    )
