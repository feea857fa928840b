"""Tar shards that are cut, damaged or made to harm: each fault is named, nothing is read into
memory without end."""

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import tracemalloc

import pytest

from fulcrum.data.readers import shards
from fulcrum.data.readers import shards as archive
from fulcrum.data.readers.reader import open_given


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
    assert faults == ["its name leads out of the archive"] * 2 + [
        "a link or device, not a file"
    ] * 2 + [
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
    # in the third sample, or before it
    end = members[7].offset_data + 20 if cut == "inside" else members[6].offset
    (tmp_path / "x.tar").write_bytes(whole[:end])
    samples = list(open_given(str(tmp_path / "x.tar")))
    assert (
        samples[-1].fault.startswith("the shard is broken")
        and "lost" in samples[-1].fault
        and samples[-1].name == "x.tar"
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
    assert (
        samples[-1].fault.startswith("the shard is broken: damaged or cut off")
        or "a tar ends with" in samples[-1].fault
    )
    assert [bool(given.fault) for given in samples[:-1]] in ([False], [False, False])


def test_an_archive_that_goes_on_after_its_end(make, tmp_path):
    """Two tars joined to one file: readers stop at the first end."""
    first, second = (
        make.tar(tmp_path / name, make.img2dataset(numbers)).read_bytes()
        for name, numbers in (("a", range(2)), ("b", range(2, 4)))
    )
    (tmp_path / "x.tar").write_bytes(first + second)
    samples = list(open_given(str(tmp_path / "x.tar")))
    assert [bool(given.fault) for given in samples] == [
        False,
        True,
    ] and "more follows its end" in samples[-1].fault


@pytest.mark.parametrize("packed", [False, True])
def test_a_shard_with_damage_inside_is_named_and_the_import_goes_on(make, tmp_path, packed):
    """A header, or the packing, overwritten in the middle: what came before counts, the next shard
    is read."""
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
    assert [given.name for given in broken] == [
        f"a{end}"
    ] and "the shard is broken: damaged" in broken[0].fault
    assert len(samples) == (3 if packed else 2 + 1 + 2), (
        "what is packed has its checksum at its end: none of it is taken"
    )
    assert [given.name for given in samples if given.name.startswith("b")] == [
        f"b{end}:{number:09d}" for number in (6, 7)
    ]
    to = make.imported(tmp_path, tmp_path / "store", bad="quarantine")
    ledger = json.loads((to / "ledger.json").read_text())
    assert (
        ledger["quarantined"] == 1
        and ledger["given"] == len(samples)
        and ledger["reasons"]["the shard is broken"] == 1
    )


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
    data = (
        b"%d" % (len(record) + len(str(size))) + record
        if kind != tarfile.GNUTYPE_LONGNAME
        else b"x" * size
    )
    info.type, info.size = kind, len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


@pytest.mark.parametrize("packing", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_without_end_is_not_read_into_memory(make, tmp_path, kind, packing):
    """Some kilobytes unfold to a header of 30 MB, which would be held whole, several times."""
    whole = make.tar(tmp_path / "x", make.img2dataset(range(2))).read_bytes()
    with tarfile.open(tmp_path / "x") as sound:
        second = sound.getmembers()[3].offset
    (tmp_path / "x.tar").write_bytes(
        packing(whole[:second] + long_header(30_000_000, kind) + whole[second:])
    )
    tracemalloc.start()
    samples = list(open_given(str(tmp_path / "x.tar")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "headers have more than 1,048,576 bytes" in samples[-1].fault and peak < 20_000_000
    (tmp_path / "x.tar").write_bytes(
        packing(whole[:second] + long_header(3_000, kind) + whole[second:])
    )
    assert not any("broken" in given.fault for given in open_given(str(tmp_path / "x.tar"))), (
        "one of a usual size is fine"
    )


def test_many_headers_are_no_way_around(make, tmp_path):
    """A chain before one member; and some for all members, each of a usual size, that add up."""
    whole = make.tar(tmp_path / "x", make.img2dataset(range(1))).read_bytes()
    (tmp_path / "x.tar").write_bytes(long_header(600) * 900 + whole)
    assert "damaged or cut off" in list(open_given(str(tmp_path / "x.tar")))[-1].fault
    link = tarfile.TarInfo("link")
    link.type = tarfile.SYMTYPE
    apart = b"".join(
        long_header(900_000, tarfile.XGLTYPE).replace(b"comment", b"c%06d" % number) + link.tobuf()
        for number in range(3)
    )
    (tmp_path / "x.tar").write_bytes(apart + whole)
    assert "headers for all members" in list(open_given(str(tmp_path / "x.tar")))[-1].fault


@pytest.mark.timeout(20)
def test_a_pipe_among_the_shards_of_a_pattern_keeps_nobody_waiting(make, tmp_path):
    os.mkfifo(tmp_path / "a.tar")
    make.tar(tmp_path / "b.tar", make.img2dataset(range(2)))
    samples = list(open_given(str(tmp_path / "*.tar")))
    assert [bool(given.fault) for given in samples] == [
        True,
        False,
        False,
    ] and "it is a pipe" in samples[0].fault


@pytest.mark.parametrize("limit, value", [("MOST_BYTES", 2500), ("MOST_PARTS", 3)])
def test_the_files_of_one_sample_are_bounded_together(make, tmp_path, monkeypatch, limit, value):
    """Each of them is: a shard of nothing but one sample would be held whole."""
    monkeypatch.setattr(shards, limit, value)
    files = [(f"a.{number}", bytes(1000)) for number in range(4)]
    make.tar(tmp_path / "x.tar", [*files, *make.img2dataset(range(1), (8, 8))])
    samples = list(open_given(str(tmp_path)))
    assert [given.name for given in samples] == ["x.tar:a", "x.tar:000000000"]
    assert (
        samples[0].fault.startswith("too many files, or too large together")
        and not samples[1].fault
    )
