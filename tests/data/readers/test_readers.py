"""What users give: folders, tables, shards, saved datasets; every fault has its sample's name."""

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import tracemalloc
from types import ModuleType, SimpleNamespace

import pytest

from fulcrum.data.readers import untrusted_archive as archive
from fulcrum.data.readers.reader import Fields, captions_of, open_given
from fulcrum.data.store.picture_store import PictureStore
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
    assert list(samples) == sorted(samples) and samples["0000.png"].captions == {"long": [make.caption(0)]}
    deep = samples["deep/a.jpg"]
    assert deep.captions == {"long": ["a long one"], "short": ["one"]} and (deep.group, deep.split) == ("g", "validation")
    assert samples["alone.png"].fault.startswith("no caption") and "without its picture" in samples["0007.txt"].fault


@pytest.mark.parametrize(
    "about, fields, wanted",
    [
        ({"caption": " two \n words "}, (), {"long": ["two words"]}),
        ({"captions": ["one", "two"]}, (), {"long": ["one", "two"]}),
        ({"captions": {"title": "x", "long": "y"}}, (), {"title": ["x"], "long": ["y"]}),
        ({"alt": "x", "blip": "y"}, (("short", "alt"), ("long", "blip")), {"short": ["x"], "long": ["y"]}),
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
    (tmp_path / "metadata.csv").write_text('file_name,text\n0.png,"never closed\n1.png,one\n2.png,two\n')
    with pytest.raises(BadInput, match="metadata.csv cannot be read: unexpected end of data"):
        read(tmp_path)


def test_a_parquet_table_needs_pyarrow(make, tmp_path, monkeypatch):
    (tmp_path / "0.png").write_bytes(make.picture(0))
    (tmp_path / "metadata.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match="needs the package pyarrow"):
        read(tmp_path)
    stand_in = ModuleType("pyarrow")  # what is asked of it
    batch = SimpleNamespace(to_pylist=lambda: [{"file": "0.png", "caption": "zero"}])
    names = SimpleNamespace(names=["file", "caption"])
    stand_in.parquet = SimpleNamespace(
        ParquetFile=lambda path: SimpleNamespace(schema_arrow=names, iter_batches=lambda batch_size: [batch])
    )
    monkeypatch.setitem(sys.modules, "pyarrow", stand_in)
    assert read(tmp_path)["0.png"].captions == {"long": ["zero"]}


def test_shards_as_img2dataset_writes_them(make, tmp_path):
    make.tar(tmp_path / "00000.tar", make.img2dataset(range(3)))
    make.tar(tmp_path / "00001.tar.gz", make.img2dataset(range(3, 5)), "w:gz")
    samples = read(tmp_path)
    assert list(samples) == [*(f"00000.tar:{n:09d}" for n in range(3)), *(f"00001.tar.gz:{n:09d}" for n in (3, 4))]
    assert samples["00001.tar.gz:000000004"].captions == {"long": [make.caption(4)]}
    assert samples["00000.tar:000000000"].data == make.picture(0, encoding="JPEG", quality=90)
    one = read(str(tmp_path / "*.tar"))
    assert len(one) == 3 and list(read((tmp_path / "00000.tar").as_uri())) == list(one), "fsspec reads the same"


def test_shards_with_faults(make, tmp_path):
    link, device = tarfile.TarInfo("c.jpg"), tarfile.TarInfo("d.jpg")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.CHRTYPE
    jpg = make.picture(0, encoding="JPEG")
    make.tar(
        tmp_path / "x.tar",
        [
            ("../out.jpg", jpg),
            ("../out.txt", b"x"),
            ("/root.jpg", jpg),
            link,
            ("c.txt", b"x"),
            device,
            ("e.txt", b"no picture"),
            ("f.jpg", jpg),
            ("g.jpg", jpg),
            ("g.png", jpg),
            ("g.txt", b"x"),
            ("h.jpg", jpg),
            ("h.json", b"[1]"),
            ("i.jpg", jpg),
            ("i.txt", b"\xff\xfe"),
            ("k.jpg", jpg),
            ("k.txt", b"fine"),
            ("f.jpg", jpg),
        ],
    )
    faults = [given.fault.split(" (")[0] for given in open_given(str(tmp_path))]
    assert faults == ["its name leads out of the archive"] * 2 + ["a link or device, not a file"] * 2 + [
        "no picture",
        "no caption",
        "two pictures: .jpg, .png",
        "its .json holds no object",
        "its .txt is not UTF-8",
        "",
        "its key comes twice, apart from each other",
    ]
    assert not (tmp_path.parent / "out.jpg").exists()


@pytest.mark.parametrize("cut", ["inside", "between"])
def test_a_cut_shard_is_named_and_its_whole_samples_count(make, tmp_path, cut):
    whole = make.tar(tmp_path / "x.tar", make.img2dataset(range(4))).read_bytes()
    with tarfile.open(tmp_path / "x.tar") as archive:
        members = archive.getmembers()
    end = members[7].offset_data + 20 if cut == "inside" else members[6].offset  # in the third sample, or before it
    (tmp_path / "x.tar").write_bytes(whole[:end])
    samples = list(open_given(str(tmp_path / "x.tar")))
    assert (
        samples[-1].fault.startswith("the shard is broken") and "lost" in samples[-1].fault and samples[-1].name == "x.tar"
    )
    assert all(not given.fault for given in samples[:-1]) and len(samples) <= 3


def test_bombs_and_limits(make, tmp_path, monkeypatch):
    make.tar(tmp_path / "x.tar.gz", [("a.jpg", bytes(3_000_000)), ("a.txt", b"x")], "w:gz")
    monkeypatch.setattr(archive, "_FREE", 1 << 16)
    samples = list(open_given(str(tmp_path)))
    assert len(samples) == 1 and "decompression bomb" in samples[0].fault
    monkeypatch.setattr(archive, "_FREE", 1 << 26)
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    assert "too large a file" in next(iter(open_given(str(tmp_path)))).fault
    monkeypatch.setattr(archive, "MOST_MEMBERS", 1)
    assert "more than 1 members" in list(open_given(str(tmp_path)))[-1].fault
    with pytest.raises(archive.Broken, match="damaged"):
        list(archive.members(io.BytesIO(b"no tar at all" * 100)))


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, b"Z"])
@pytest.mark.parametrize("size", [20_000, 2**62])
@pytest.mark.parametrize("packed", [False, True])
def test_a_header_that_announces_what_cannot_follow(make, tmp_path, size, kind, packed):
    """The reader would skip it block by block, for years."""
    info = tarfile.TarInfo("b.png")
    info.size, info.type = size, kind
    whole = make.tar(tmp_path / "x", make.img2dataset(range(2))).read_bytes().rstrip(b"\0")
    whole += bytes(-len(whole) % 512) + info.tobuf(tarfile.GNU_FORMAT) + bytes(10240)
    (tmp_path / "x.tar").write_bytes(gzip.compress(whole) if packed else whole)
    samples = list(open_given(str(tmp_path / "x.tar")))
    assert samples[-1].fault.startswith("the shard is broken: damaged or cut off") or "a tar ends with" in samples[-1].fault
    assert [bool(given.fault) for given in samples[:-1]] in ([False], [False, False])


def test_an_archive_that_goes_on_after_its_end(make, tmp_path):
    """Two tars joined to one file: readers stop at the first end."""
    first, second = (
        make.tar(tmp_path / name, make.img2dataset(numbers)).read_bytes()
        for name, numbers in (("a", range(2)), ("b", range(2, 4)))
    )
    (tmp_path / "x.tar").write_bytes(first + second)
    samples = list(open_given(str(tmp_path / "x.tar")))
    assert [bool(given.fault) for given in samples] == [False, True] and "more follows its end" in samples[-1].fault


@pytest.mark.parametrize("packed", [False, True])
def test_a_shard_with_damage_inside_is_named_and_the_import_goes_on(make, tmp_path, packed):
    """A header, or the packing, overwritten in the middle: what came before counts, the next shard is read."""
    mode, end = ("w:gz", ".tar.gz") if packed else ("w", ".tar")
    path = make.tar(tmp_path / f"a{end}", make.img2dataset(range(6), (64, 64)), mode)
    make.tar(tmp_path / f"b{end}", make.img2dataset(range(6, 8)), mode)
    data = bytearray(path.read_bytes())
    if packed:
        place = len(data) // 2
    else:
        with tarfile.open(path) as whole:
            place = whole.getmembers()[9].offset  # the fourth sample's first header
    data[place : place + 64] = bytes(255 - byte for byte in data[place : place + 64])
    path.write_bytes(data)
    samples = list(open_given(str(tmp_path)))
    broken = [given for given in samples if given.fault]
    assert [given.name for given in broken] == [f"a{end}"] and "the shard is broken: damaged" in broken[0].fault
    assert len(samples) == (3 if packed else 2 + 1 + 2), "what is packed has its checksum at its end: none of it is taken"
    assert [given.name for given in samples if given.name.startswith("b")] == [f"b{end}:{number:09d}" for number in (6, 7)]
    to = make.imported(tmp_path, tmp_path / "store", bad="quarantine")
    ledger = json.loads((to / "ledger.json").read_text())
    assert ledger["quarantined"] == 1 and ledger["given"] == len(samples) and ledger["reasons"]["the shard is broken"] == 1


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
    stand_in.Image = type("Image", (), {"__init__": lambda self, decode=True: setattr(self, "decode", decode)})
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
    assert samples["pipe.png"].fault == "not a file: a device or a pipe" and samples["0001.png"].fault.startswith(
        "no caption"
    )
    to = make.imported(tmp_path / "given", tmp_path / "store", bad="quarantine")
    opened = PictureStore(to)
    assert [opened.name(row) for row in range(3)] == ["0000.png", "0002.png", "?.png"]


def test_a_header_that_unfolds_is_a_bomb_too(make, tmp_path, monkeypatch):
    info = tarfile.TarInfo("a.jpg")
    info.pax_headers = {"comment": "x" * 3_000_000}
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(info)
    monkeypatch.setattr(archive, "_FREE", 1 << 16)
    samples = list(open_given(str(tmp_path)))
    assert len(samples) == 1 and "decompression bomb" in samples[0].fault


def long_header(size, kind=tarfile.XHDTYPE):
    """The blocks of an extension header that says nothing, at length."""
    info = tarfile.TarInfo("long")
    record = b" comment=" + b"x" * (size - 20) + b"\n"
    data = b"%d" % (len(record) + len(str(size))) + record if kind != tarfile.GNUTYPE_LONGNAME else b"x" * size
    info.type, info.size = kind, len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


@pytest.mark.parametrize("packing", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_without_end_is_not_read_into_memory(make, tmp_path, kind, packing):
    """Some kilobytes unfold to a header of 30 MB, which would be held whole, several times."""
    whole = make.tar(tmp_path / "x", make.img2dataset(range(2))).read_bytes()
    with tarfile.open(tmp_path / "x") as sound:
        second = sound.getmembers()[3].offset
    (tmp_path / "x.tar").write_bytes(packing(whole[:second] + long_header(30_000_000, kind) + whole[second:]))
    tracemalloc.start()
    samples = list(open_given(str(tmp_path / "x.tar")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "headers have more than 1,048,576 bytes" in samples[-1].fault and peak < 20_000_000
    (tmp_path / "x.tar").write_bytes(packing(whole[:second] + long_header(3_000, kind) + whole[second:]))
    assert not any("broken" in given.fault for given in open_given(str(tmp_path / "x.tar"))), "one of a usual size is fine"


def test_many_headers_are_no_way_around(make, tmp_path):
    """A chain before one member; and some for all members, each of a usual size, that add up."""
    whole = make.tar(tmp_path / "x", make.img2dataset(range(1))).read_bytes()
    (tmp_path / "x.tar").write_bytes(long_header(600) * 900 + whole)
    assert "damaged or cut off" in list(open_given(str(tmp_path / "x.tar")))[-1].fault
    link = tarfile.TarInfo("link")
    link.type = tarfile.SYMTYPE
    apart = b"".join(
        long_header(900_000, tarfile.XGLTYPE).replace(b"comment", b"c%06d" % number) + link.tobuf() for number in range(3)
    )
    (tmp_path / "x.tar").write_bytes(apart + whole)
    assert "headers for all members" in list(open_given(str(tmp_path / "x.tar")))[-1].fault


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
        assert given.suffix == ".csv" or "0001.png" in read(folder, table=str(given)), "a table that is named is read"
    (folder / name).unlink()
    (folder / name).symlink_to("0000.txt")
    if name.endswith(".txt"):
        assert read(folder)["0001.png"].captions == {"long": [make.caption(0)]}, "a link inside is fine"


def test_nothing_there(tmp_path):
    for path, words in (
        (tmp_path / "no", "there is nothing"),
        (tmp_path, "holds no pictures"),
        ("s0me://bucket/x.tar", "cannot look"),
    ):
        with pytest.raises(BadInput, match=words):
            read(path)
