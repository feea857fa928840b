"""Parquet and saved datasets, with the real packages: what is damaged or lacks a column is named,
never half read."""

import io
import json
import tracemalloc

import numpy as np
import pytest

from fulcrum.data.readers import image_folder
from fulcrum.data.readers import parquet as given_parquet
from fulcrum.data.readers.reader import Fields, bounded_lines, open_given
from fulcrum.data.stores.picture_store import LEDGER, PictureStore
from fulcrum.spec.errors import BadInput

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def read(path, fields=Fields(), table=""):  # noqa: B008
    return list(open_given(str(path), fields, table))


@pytest.fixture
def table(make, tmp_path):
    """Two pictures beside a table."""
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(make.picture(number))
    path = tmp_path / "metadata.parquet"
    columns = {"file": ["0.png", "1.png"], "caption": ["zero", "one"], "tags": [["a", "b"], ["c"]]}
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_a_table_beside_its_pictures(table):
    assert [given.captions for given in read(table.parent)] == [
        {"long": ["zero"]},
        {"long": ["one"]},
    ]
    tags = read(table.parent, Fields(captions=(("long", "tags"),)))
    assert [given.captions["long"] for given in tags] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    "fields, words",
    [
        (Fields(captions=(("long", "blip"),)), "no column 'blip'; found file, caption, tags"),
        (Fields(group="artist"), "no column 'artist'"),
        (Fields(file="url"), "no column 'url'"),
        (Fields(captions=(("long", "caption"),), group="artist"), "no column 'artist'"),
    ],
)
def test_a_missing_column_is_refused_at_once(table, fields, words):
    with pytest.raises(BadInput, match=words):
        read(table.parent, fields)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"PAR1 is not PAR1",
        lambda data: data[:30] + bytes([data[30] ^ 255]) + data[31:],
    ],
    ids=range(4),
)
def test_a_damaged_table_is_refused(table, damage):
    table.write_bytes(damage(table.read_bytes()))
    with pytest.raises(BadInput, match="metadata.parquet cannot be read"):
        read(table.parent)


@pytest.mark.parametrize("bad", ["[1,2]", "{cut", "null"])
def test_a_bad_first_row_is_one_bad_sample(make, tmp_path, bad):
    folder = tmp_path / "given"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.png").write_bytes(make.picture(number))
    rows = [
        json.dumps({"file_name": f"{number}.png", "text": make.caption(number)})
        for number in range(30)
    ]
    (folder / "metadata.jsonl").write_text("\n".join([bad, *rows]))
    store = make.imported(folder, tmp_path / "store", bad="quarantine")
    ledger = json.loads((store / LEDGER).read_text())
    assert (ledger["kept"], ledger["quarantined"]) == (30, 1)
    (folder / "metadata.jsonl").write_text(bad)
    with pytest.raises(BadInput, match="no rows that can be read"):
        read(folder)


def as_the_hub_does(make, numbers, captions=True, size=(24, 16)):
    pictures = [
        {"bytes": make.picture(number, size), "path": f"{number}.png"} for number in numbers
    ]
    columns = {
        "image": pictures,
        **({"text": [make.caption(number) for number in numbers]} if captions else {}),
    }
    return pyarrow.table(columns)


def test_files_that_hold_the_pictures(make, tmp_path):
    (tmp_path / "data").mkdir()
    for number, split in enumerate(("train", "test", "validation")):
        rows = as_the_hub_does(make, range(10 * number, 10 * number + 8))
        parquet.write_table(rows, tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    store = PictureStore(make.imported(tmp_path, tmp_path / "store"))
    assert (
        store.about["splits"] == {"train": 8, "validation": 8, "reference": 8}
        and store.about["kind"] == "parquet files"
    )
    assert (
        store.captions(0) == {"long": [make.caption(10)]}
        and store.name(0) == "test-00000-of-00001.parquet row 0"
    )
    alone = read(tmp_path / "data" / "train-00000-of-00001.parquet")
    assert len(alone) == 8 and not any(given.split for given in alone), "one file parts nothing"
    assert alone[3].data == make.picture(3)


def test_files_with_faults(make, tmp_path, monkeypatch):
    rows = as_the_hub_does(make, range(2)).append_column(
        "two", pyarrow.array([b"x", None], pyarrow.binary())
    )
    parquet.write_table(rows, tmp_path / "x.parquet")
    with pytest.raises(
        BadInput, match="which column holds the pictures. found image, two among image, text, two"
    ):
        read(tmp_path)
    two = read(tmp_path, Fields(file="two"))
    assert two[0].data == b"x" and two[1].fault == "no picture"
    parquet.write_table(as_the_hub_does(make, range(2), captions=False), tmp_path / "x.parquet")
    with pytest.raises(BadInput, match="no column 'caption'; found image"):
        read(tmp_path)
    parquet.write_table(
        pyarrow.table({"url": ["http://x"], "caption": ["x"]}), tmp_path / "x.parquet"
    )
    with pytest.raises(BadInput, match="found none of bytes among url, caption"):
        read(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInput, match="x.parquet cannot be read"):
        read(tmp_path)
    zeros = pyarrow.table({"image": [bytes(300_000)] * 20, "caption": ["x"] * 20})
    parquet.write_table(zeros, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    monkeypatch.setattr(given_parquet, "_FREE", 1 << 16)
    with pytest.raises(BadInput, match="decompression bomb"):
        read(tmp_path)


def test_damage_in_the_middle_of_a_file_is_named(make, tmp_path):
    rows = as_the_hub_does(make, range(96), size=(40, 40))
    parquet.write_table(
        rows, tmp_path / "a.parquet", row_group_size=32, compression="none", use_dictionary=False
    )
    parquet.write_table(as_the_hub_does(make, range(96, 98)), tmp_path / "b.parquet")
    with parquet.ParquetFile(tmp_path / "a.parquet") as whole:
        place = whole.metadata.row_group(1).column(0).data_page_offset
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    data[place : place + 16] = b"\xff" * 16
    (tmp_path / "a.parquet").write_bytes(data)
    samples = read(tmp_path)
    (broken,) = (given for given in samples if given.fault)
    assert broken.name == "a.parquet" and "after row 31" in broken.fault and "lost" in broken.fault
    assert len(samples) == 32 + 1 + 2
    to = make.imported(tmp_path, tmp_path / "store", bad="quarantine")
    assert json.loads((to / LEDGER).read_text())["reasons"] == {"the file is broken": 1}


@pytest.fixture
def saved(make, tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()

    def write(name, **splits):
        kinds = {"image": datasets.Image(), "caption": datasets.Value("string")}
        made = {
            split: datasets.Dataset.from_dict(
                {
                    "image": [{"bytes": make.picture(number), "path": None} for number in numbers],
                    "caption": [make.caption(number) for number in numbers],
                },
                features=datasets.Features(kinds),
            )
            for split, numbers in splits.items()
        }
        (made["train"] if len(splits) == 1 else datasets.DatasetDict(made)).save_to_disk(
            tmp_path / name
        )
        return tmp_path / name

    return write


def test_a_saved_dataset(make, saved):
    samples = read(saved("one", train=range(3)))
    assert [(given.name, given.captions["long"], given.split) for given in samples] == [
        (f"row {number}", [make.caption(number)], "") for number in range(3)
    ]
    assert samples[1].data == make.picture(1)


def test_splits_of_a_saved_dataset(make, saved, tmp_path):
    store = PictureStore(
        make.imported(
            saved("all", train=range(9), test=range(10, 14), validation=range(20, 23)),
            tmp_path / "store",
        )
    )
    assert store.about["splits"] == {"train": 9, "validation": 3, "reference": 4}
    assert np.array_equal(store.picture(9), store.picture(9)) and store.name(9) == "test row 0"
    with pytest.raises(BadInput, match="a split called 'extra'"):
        read(saved("odd", train=range(2), extra=range(2)))


def test_no_other_column_of_a_saved_dataset_is_decoded(make, tmp_path):
    """The package would open whatever file or address it names."""
    datasets = pytest.importorskip("datasets")
    kinds = {
        "image": datasets.Image(),
        "other": datasets.Image(),
        "caption": datasets.Value("string"),
    }
    rows = {
        "image": [{"bytes": make.picture(0), "path": None}],
        "other": [{"bytes": b"no picture", "path": "/etc/passwd"}],
        "caption": ["a picture"],
    }
    datasets.Dataset.from_dict(rows, features=datasets.Features(kinds)).save_to_disk(
        tmp_path / "one"
    )
    assert [given.data for given in read(tmp_path / "one", Fields(file="image"))] == [
        make.picture(0)
    ]


def test_a_saved_dataset_that_is_damaged_or_lacks_a_column(saved):
    folder = saved("one", train=range(3))
    with pytest.raises(BadInput, match="no column 'blip'; found image, caption"):
        read(folder, Fields(captions=(("long", "blip"),)))
    with pytest.raises(BadInput, match="which column holds the pictures. found image among"):
        read(folder, Fields(file="caption"))
    state = (folder / "state.json").read_text()
    for damaged in ("[]", "{}", '{"_data_files": 5}', "[" * 100_000, ""):
        (folder / "state.json").write_text(damaged)
        with pytest.raises(BadInput, match="cannot be read"):
            read(folder)
    (folder / "state.json").write_text(state)
    path = next(folder.glob("*.arrow"))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"junk" * 100, b""):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="cannot be read"):
            read(folder)
    path.unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        read(folder)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_that_comes_twice_is_refused(make, tmp_path, suffix):
    (tmp_path / "0.png").write_bytes(make.picture(0))
    path = tmp_path / f"metadata.{suffix}"
    if suffix == "csv":
        path.write_text("file,caption,caption\n0.png,one,another\n")
    else:
        columns = [pyarrow.array([text]) for text in ("0.png", "one", "another")]
        parquet.write_table(
            pyarrow.Table.from_arrays(columns, ["file", "caption", "caption"]), path
        )
    with pytest.raises(
        BadInput, match=f"metadata.{suffix} has more than one column called 'caption'"
    ):
        read(tmp_path)


def test_a_file_that_holds_the_pictures_has_each_column_once(make, tmp_path):
    columns = [pyarrow.array([one]) for one in (make.picture(0), "one", "another")]
    parquet.write_table(
        pyarrow.Table.from_arrays(columns, ["image", "text", "text"]), tmp_path / "a.parquet"
    )
    with pytest.raises(BadInput, match="more than one column called 'text'"):
        read(tmp_path)


def test_a_mark_at_the_beginning_of_a_text_file_is_no_part_of_it(make, tmp_path):
    """Spreadsheets and some editors begin UTF-8 with one: EF BB BF."""
    mark = b"\xef\xbb\xbf"
    tables = {
        "csv": b"file,caption\n0.png,a red square\n",
        "jsonl": b'{"file": "0.png", "caption": "a red square"}\n',
    }
    for suffix, text in tables.items():
        folder = tmp_path / suffix
        folder.mkdir()
        (folder / "0.png").write_bytes(make.picture(0))
        (folder / f"metadata.{suffix}").write_bytes(mark + text)
        assert [given.captions for given in read(folder)] == [{"long": ["a red square"]}]
    beside = {"txt": b"a red square", "json": b'{"caption": "a red square"}'}
    for suffix, text in beside.items():
        folder = tmp_path / f"beside_{suffix}"
        folder.mkdir()
        (folder / "0.png").write_bytes(make.picture(0))
        (folder / f"0.{suffix}").write_bytes(mark + text)
        assert [given.captions for given in read(folder)] == [{"long": ["a red square"]}]


@pytest.mark.parametrize("kind", [pyarrow.timestamp("us"), pyarrow.date32()])
def test_a_date_that_python_does_not_know_is_one_bad_row(make, tmp_path, kind):
    far = pyarrow.array([0, 2**30 if kind == pyarrow.date32() else 2**62], kind)
    parquet.write_table(
        as_the_hub_does(make, range(2)).append_column("made", far), tmp_path / "x.parquet"
    )
    assert [given.fault[:28] for given in read(tmp_path)] == ["", "a value that cannot be read,"]
    folder = tmp_path / "given"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.png").write_bytes(make.picture(number))
    table = pyarrow.table({"file_name": ["0.png", "1.png"], "text": ["a", "b"], "made": far})
    parquet.write_table(table, folder / "metadata.parquet")
    # the last: a picture that no row names
    assert [given.fault for given in read(folder)] == ["", "cannot be read", ""]


@pytest.mark.parametrize("beside", [False, True])
def test_a_value_that_stands_in_every_row_is_held_once(make, tmp_path, beside):
    """A kilobyte of Parquet: one text of 2 MB, which a dictionary repeats in every row."""
    numbers, text = pyarrow.array([0] * 24, pyarrow.int32()), pyarrow.array(["x" * (1 << 21)])
    texts = pyarrow.DictionaryArray.from_arrays(numbers, text)
    pictures = (
        {"file_name": [f"{number}.png" for number in range(24)]}
        if beside
        else {"image": [make.picture(0)] * 24}
    )
    parquet.write_table(
        pyarrow.table({**pictures, "text": texts}),
        tmp_path / "metadata.parquet",
        compression="zstd",
    )
    if beside:
        for number in range(24):
            (tmp_path / f"{number}.png").write_bytes(make.picture(number))
    tracemalloc.start()
    faults = [given.fault for given in open_given(str(tmp_path))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        faults == ["the caption 'text' has 2,097,152 letters; the limit is 1,048,576"] * 24
        and peak < 8 << 21
    )


@pytest.mark.parametrize("beside", [False, True])
def test_a_row_without_end_is_not_read_into_memory(make, tmp_path, monkeypatch, beside):
    monkeypatch.setattr(
        given_parquet if not beside else image_folder,
        "MOST_BYTES" if not beside else "MOST_LINE",
        5000,
    )
    if beside:
        (tmp_path / "0.png").write_bytes(make.picture(0))
        lines = [
            json.dumps({"file_name": "0.png", "text": text}) for text in ("x" * 12_000, "short")
        ]
        (tmp_path / "metadata.jsonl").write_text("\n".join(lines))
        assert [given.fault for given in read(tmp_path)] == ["cannot be read", ""]
        (tmp_path / "metadata.jsonl").unlink()
        (tmp_path / "metadata.csv").write_text("file_name,text\n0.png," + "x" * 12_000 + "\n")
        with pytest.raises(BadInput, match="a line has more than 5,000 letters"):
            read(tmp_path)
    else:
        rows = as_the_hub_does(make, range(2)).append_column(
            "more", pyarrow.array([bytes(9000), b""])
        )
        parquet.write_table(rows, tmp_path / "x.parquet")
        samples = read(tmp_path, Fields(file="image"))
        assert [bool(given.fault) for given in samples] == [
            True,
            False,
        ] and "5,000 bytes" in samples[0].fault


def test_a_line_that_is_too_long_is_passed_over():
    lines = [b"a\n", b"b" * 9 + b"\n", b"c" * 10 + b"\n", b"d" * 35 + b"\n", b"e" * 40]
    assert list(bounded_lines(io.BytesIO(b"".join(lines)), 10)) == [
        lines[0],
        lines[1],
        None,
        None,
        None,
    ]
