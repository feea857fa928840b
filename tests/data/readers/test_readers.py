"""What users give: folders, tables, shards, saved datasets; every fault has its sample's name."""

import json
import os
import sys
from types import ModuleType

import pytest

from fulcrum.data.readers.reader import Fields, captions_of, open_given
from fulcrum.data.stores.picture_store import PictureStore
from fulcrum.spec.errors import BadInput


def read(path, fields=Fields(), table=""):  # noqa: B008
    return {given.name: given for given in open_given(str(path), fields, table)}


def test_a_folder_with_captions_beside_its_pictures(make, tmp_path):
    make.folder(tmp_path, 2)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.jpg").write_bytes(make.picture(9, encoding="JPEG"))
    about = {"long": "a long one", "short": "one", "group": "g", "split": "val"}
    (tmp_path / "deep" / "a.json").write_text(json.dumps(about))
    (tmp_path / "alone.png").write_bytes(make.picture(5))
    (tmp_path / "0007.txt").write_text("nobody drew this")
    samples = read(tmp_path)
    assert list(samples) == sorted(samples) and samples["0000.png"].captions == {
        "long": [make.caption(0)]
    }
    deep = samples["deep/a.jpg"]
    assert deep.captions == {"long": ["a long one"], "short": ["one"]} and (
        deep.group,
        deep.split,
    ) == ("g", "validation")
    assert (
        samples["alone.png"].fault.startswith("no caption")
        and "without its picture" in samples["0007.txt"].fault
    )


@pytest.mark.parametrize(
    "about, fields, wanted",
    [
        ({"caption": " two \n words "}, (), {"long": ["two words"]}),
        ({"captions": ["one", "two"]}, (), {"long": ["one", "two"]}),
        ({"captions": {"title": "x", "long": "y"}}, (), {"title": ["x"], "long": ["y"]}),
        (
            {"alt": "x", "blip": "y"},
            (("short", "alt"), ("long", "blip")),
            {"short": ["x"], "long": ["y"]},
        ),
    ],
)
def test_captions_have_names(about, fields, wanted):
    assert captions_of(about, Fields(captions=fields)) == wanted


@pytest.mark.parametrize(
    "about, fields, words",
    [
        ({"title": "x"}, (), "no caption"),
        ({"caption": 3}, (), "not text"),
        ({"caption": "  "}, (), "is empty"),
        ({"captions": []}, (), "not text"),
        ({"caption": "\ud800"}, (), "not Unicode"),
        ({"alt": "x"}, (("long", "blip"),), "no field 'blip'"),
    ],
)
def test_captions_that_cannot_be_used(about, fields, words):
    with pytest.raises(ValueError, match=words):
        captions_of(about, Fields(captions=fields))


def test_a_table_names_its_pictures(make, tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(make.picture(number))
    rows = [
        {"file_name": "0.png", "text": "zero"},
        {"file_name": "1.png", "text": None},
        {"file_name": "../../etc/x.png", "text": "x"},
        {"file_name": "9.png", "text": "x"},
        {"file_name": "0.png", "text": "again"},
    ]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n")
    samples = list(open_given(str(tmp_path)))
    assert samples[0].captions == {"long": ["zero"]} and samples[1].fault == "no caption"
    assert [given.fault.split(":")[0] for given in samples[2:6]] == [
        "a name that leads out of the folder",
        "names a picture that is not there",
        "names a picture a second time",
        "cannot be read",
    ]
    assert [(given.name, given.left) for given in samples[6:]] == [
        (f"{n}.png", "the table does not name it") for n in (2, 3)
    ]
    with pytest.raises(BadInput, match="no column 'alt'; found file_name, text"):
        read(tmp_path, Fields(captions=(("long", "alt"),)))
    (tmp_path / "captions.csv").write_text("image,caption\n2.png,two\n3.png\n")
    with pytest.raises(BadInput, match="two tables"):
        read(tmp_path)
    samples = list(open_given(str(tmp_path), table=str(tmp_path / "captions.csv")))
    assert samples[0].captions == {"long": ["two"]} and samples[1].fault == "cannot be read"


def test_a_quote_that_never_closes_does_not_eat_the_other_rows(make, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(make.picture(number))
    (tmp_path / "metadata.csv").write_text(
        'file_name,text\n0.png,"never closed\n1.png,one\n2.png,two\n'
    )
    with pytest.raises(BadInput, match="metadata.csv cannot be read: unexpected end of data"):
        read(tmp_path)


def test_a_parquet_table_needs_pyarrow(make, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "0.png").write_bytes(make.picture(0))
    parquet.write_table(
        pyarrow.table({"file": ["0.png"], "caption": ["zero"]}), tmp_path / "metadata.parquet"
    )
    assert read(tmp_path)["0.png"].captions == {"long": ["zero"]}
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match="needs the package pyarrow"):
        read(tmp_path)


def test_shards_as_img2dataset_writes_them(make, tmp_path):
    make.tar(tmp_path / "00000.tar", make.img2dataset(range(3)))
    make.tar(tmp_path / "00001.tar.gz", make.img2dataset(range(3, 5)), "w:gz")
    samples = read(tmp_path)
    assert list(samples) == [
        *(f"00000.tar:{n:09d}" for n in range(3)),
        *(f"00001.tar.gz:{n:09d}" for n in (3, 4)),
    ]
    assert samples["00001.tar.gz:000000004"].captions == {"long": [make.caption(4)]}
    assert samples["00000.tar:000000000"].data == make.picture(0, encoding="JPEG", quality=90)
    one = read(str(tmp_path / "*.tar"))
    assert len(one) == 3 and list(read((tmp_path / "00000.tar").as_uri())) == list(one), (
        "fsspec reads the same"
    )


class Saved(list):
    """What datasets.load_from_disk gives, as far as it is used."""

    features = {"image": None, "caption": None}

    def cast_column(self, name, kind):
        assert name == "image" and kind.decode is False
        return self


def test_a_saved_dataset(make, tmp_path, monkeypatch):
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match="not installed"):
        read(tmp_path)
    stand_in = ModuleType("datasets")
    stand_in.Image = type(
        "Image", (), {"__init__": lambda self, decode=True: setattr(self, "decode", decode)}
    )
    rows = Saved(
        [
            {"image": {"bytes": make.picture(0), "path": None}, "caption": "zero"},
            {"image": None, "caption": "x"},
            {"image": {"bytes": None, "path": "/etc/passwd"}, "caption": "x"},
        ]
    )
    Saved.features["image"] = stand_in.Image()
    stand_in.load_from_disk = lambda path: rows
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    samples = list(open_given(str(tmp_path)))
    assert samples[0].captions == {"long": ["zero"]} and samples[0].data == make.picture(0)
    assert samples[1].fault == "no picture" and "outside" in samples[2].fault
    with pytest.raises(BadInput, match="no column 'blip'"):
        read(tmp_path, Fields(captions=(("long", "blip"),)))


def test_odd_files_in_a_folder(make, tmp_path):
    make.folder(tmp_path / "given", 3)
    os.mkfifo(tmp_path / "given" / "pipe.png")
    (tmp_path / "given" / "pipe.txt").write_text("would wait for ever")
    (tmp_path / "given" / "0001.txt").unlink()
    (tmp_path / "given" / "0001.txt").mkdir()
    strange = os.fsencode(tmp_path / "given") + b"/\xff.png"
    with open(strange, "wb") as picture, open(strange[:-3] + b"txt", "w") as caption:
        picture.write(make.picture(7))
        caption.write("a name that is no text")
    samples = read(tmp_path / "given")
    assert samples["pipe.png"].fault == "not a file: a device or a pipe" and samples[
        "0001.png"
    ].fault.startswith("no caption")
    to = make.imported(tmp_path / "given", tmp_path / "store", bad="quarantine")
    opened = PictureStore(to)
    assert [opened.name(row) for row in range(3)] == ["0000.png", "0002.png", "?.png"]


@pytest.mark.parametrize("name", ["0001.txt", "0001.json", "metadata.csv", "captions.jsonl"])
def test_a_caption_that_is_a_link_out_of_the_folder_is_refused(make, tmp_path, name):
    """Whoever made the folder could have any text of this machine read into the store."""
    folder = make.folder(tmp_path / "given", 3)
    (tmp_path / "secret").write_text('{"file_name": "0001.png", "text": "a secret"}')
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../secret")
    if name.startswith("0001"):
        assert f"its {name[4:]} is a link that leads out" in read(folder)["0001.png"].fault
    else:
        with pytest.raises(BadInput, match=f"{name} is a link that leads out of the folder"):
            read(folder)
        given = tmp_path / f"own{(folder / name).suffix}"
        (tmp_path / "secret").rename(given)
        assert given.suffix == ".csv" or "0001.png" in read(folder, table=str(given)), (
            "a table that is named is read"
        )
    (folder / name).unlink()
    (folder / name).symlink_to("0000.txt")
    if name.endswith(".txt"):
        assert read(folder)["0001.png"].captions == {"long": [make.caption(0)]}, (
            "a link inside is fine"
        )


def test_nothing_there(tmp_path):
    for path, words in (
        (tmp_path / "no", "there is nothing"),
        (tmp_path, "holds no pictures"),
        ("s0me://bucket/x.tar", "cannot look"),
    ):
        with pytest.raises(BadInput, match=words):
            read(path)
