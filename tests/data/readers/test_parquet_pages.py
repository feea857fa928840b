"""Pages of Parquet files are measured by their own headers before pyarrow makes room for them."""

import io
import random
import tracemalloc

import pytest

from fulcrum.data.readers import parquet as given_parquet
from fulcrum.data.readers import parquet as parquet_pages
from fulcrum.data.readers.parquet import Bomb, measured, unfolded
from fulcrum.data.readers.reader import open_given
from fulcrum.spec.errors import BadInput

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from chaos.hostile_tables import padded_head  # noqa: E402


def read(path):
    return list(open_given(str(path)))


def padded(number, length):
    """A number as Thrift writes it, in as many bytes as asked for."""
    parts = [number * 2 >> 7 * place & 127 for place in range(length)]
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


def noise(make, seed):
    """A picture that no codec makes smaller."""
    return make.picture(0) + random.Random(seed).randbytes(3000)


def spoilt(path, old, new, footer):
    """The number written over, in the head of the file (which stands at its end) or in its
    pages."""
    data, length = path.read_bytes(), next(n for n in range(1, 10) if old * 2 < 1 << 7 * n)
    cut = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    parts = [data[:cut], data[cut:]]
    assert padded(old, length) in parts[footer]
    parts[footer] = parts[footer].replace(padded(old, length), padded(new, length))
    path.write_bytes(b"".join(parts))


def test_pages_that_unfold_to_more_than_the_head_says_are_refused_unread(tmp_path, monkeypatch):
    """pyarrow believes each page, and makes room for what it says."""
    path = tmp_path / "x.parquet"
    zeros = pyarrow.table({"image": [bytes(300_000)] * 20, "caption": ["x"] * 20})
    parquet.write_table(zeros, path, compression="zstd", use_dictionary=False)
    group = parquet.ParquetFile(path).metadata.row_group(0)
    for size in {group.total_byte_size, group.column(0).total_uncompressed_size}:
        spoilt(path, size, 1000, footer=True)
    assert parquet.ParquetFile(path).metadata.row_group(0).total_byte_size == 1000
    monkeypatch.setattr(given_parquet, "_FREE", 1 << 16)
    with pytest.raises(BadInput, match=r"unfolds to 6,000,\d+ bytes: a decompression bomb"):
        read(tmp_path)


WORDS = {
    "MOST_PAGE": (
        r"a page of [\d,]+ bytes that unfolds to [\d,]+; the limit is 100,000, or 4 times what .*"
        r" bomb"
    ),
    "MOST_HELD": r"a page that unfolds to [\d,]+ bytes; pyarrow reads none of more than 100,000",
    "MOST_VALUES": "a page of 20 values, the limit is 19: a decompression bomb",
}


@pytest.mark.parametrize(
    ("limit", "most"), [("MOST_PAGE", 100_000), ("MOST_HELD", 100_000), ("MOST_VALUES", 19)]
)
def test_one_page_that_is_too_large_is_refused(make, tmp_path, monkeypatch, limit, most):
    rows = pyarrow.table({"image": [make.picture(0) * 100] * 20, "caption": ["x"] * 20})
    parquet.write_table(rows, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    assert len(read(tmp_path)) == 20
    monkeypatch.setattr(given_parquet, limit, most)
    with pytest.raises(BadInput, match=WORDS[limit]):
        read(tmp_path)


@pytest.mark.parametrize("folded", ["none", "snappy", "zstd"])
def test_a_large_page_of_pictures_that_hardly_shrank_is_read(make, tmp_path, monkeypatch, folded):
    """pyarrow looks at a page's size after 1,024 values only: its pages of pictures know no
    limit."""
    monkeypatch.setattr(given_parquet, "MOST_PAGE", 1_000)
    pictures = pyarrow.table(
        {"image": [noise(make, seed) for seed in range(20)], "caption": ["x"] * 20}
    )
    parquet.write_table(pictures, tmp_path / "x.parquet", compression=folded)
    assert len(read(tmp_path)) == 20
    pictures = pyarrow.table({"image": [noise(make, 0)] * 20, "caption": ["x"] * 20})
    parquet.write_table(pictures, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(BadInput, match="a decompression bomb"):
        read(tmp_path)


PAGES = [(2500, 10), (4000, 1000), (3000, 100)]  # bytes in memory, in the file


def test_a_small_page_that_unfolds_far_is_found_beside_a_large_one_that_does_not():
    """The largest page of all is not the one to judge by."""
    headers = [
        b"\x15\x00\x15" + padded(size, 2) + b"\x15" + padded(folded, 2) + b"\x00"
        for size, folded in PAGES
    ]
    pages = b"".join(
        header + bytes(folded) for header, (_, folded) in zip(headers, PAGES, strict=True)
    )
    found = measured(io.BytesIO(b"PAR1" + pages), [{7: len(pages), 9: 4}], len(pages) + 4)
    assert found.largest == 4000 and found.shrunk == (100, 3000, 0)


def test_a_head_of_fields_that_nobody_knows_takes_no_memory(tmp_path, monkeypatch):
    """pyarrow passes over them, a million at a time."""
    parquet.write_table(pyarrow.table({"number": [1, 2, 3]}), tmp_path / "x.parquet")
    data = padded_head((tmp_path / "x.parquet").read_bytes(), lists=3, structs=50_000)
    (tmp_path / "x.parquet").write_bytes(data)
    assert parquet.ParquetFile(tmp_path / "x.parquet").metadata.num_rows == 3
    tracemalloc.start()
    found = unfolded(io.BytesIO(data))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.values == 3 and most < 1_000_000
    monkeypatch.setattr(parquet_pages, "MOST_FIELDS", 100_000, raising=False)
    with pytest.raises(BadInput, match="its head holds more than 100,000 values"):
        read(tmp_path)


def test_a_head_of_many_row_groups_is_no_bomb(tmp_path, monkeypatch):
    """10,000 of 10 columns must be read: a hundredth of them passes a hundredth of the limit."""
    rows = pyarrow.table(
        {f"column {number}": [f"{row}" for row in range(100)] for number in range(10)}
    )
    parquet.write_table(rows, tmp_path / "x", row_group_size=1, use_dictionary=False)
    monkeypatch.setattr(parquet_pages, "MOST_FIELDS", parquet_pages.MOST_FIELDS // 100)
    with (tmp_path / "x").open("rb") as stream:
        assert unfolded(stream).values == 1


def test_row_groups_are_measured_whatever_their_list_says_that_it_holds(tmp_path):
    """pyarrow does not look: a file must not hide its pages from us behind a wrong kind."""
    parquet.write_table(pyarrow.table({"number": [1, 2, 3]}), tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    assert data.count(b"\x16\x06\x19\x1c") == 1  # three rows, then a list of one struct
    data = data.replace(b"\x16\x06\x19\x1c", b"\x16\x06\x19\x13")  # of one byte
    assert parquet.read_table(io.BytesIO(data)).num_rows == 3
    assert unfolded(io.BytesIO(data)).values == 3


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("folded", ["none", "snappy", "zstd", "gzip"])
def test_pages_are_measured_as_they_were_written(tmp_path, version, folded):
    texts = [f"{number % 50} {'word ' * 300}" for number in range(2000)]
    rows = pyarrow.table(
        {"text": texts, "number": range(2000), "list": [[1.5, None]] * 2000, "none": [None] * 2000}
    )
    how = {
        "compression": folded,
        "data_page_version": version,
        "data_page_size": 4096,
        "row_group_size": 700,
    }
    parquet.write_table(rows, tmp_path / "x", write_page_checksum=True, **how)
    about = parquet.ParquetFile(tmp_path / "x").metadata
    stated = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    with (tmp_path / "x").open("rb") as stream:
        pages = unfolded(stream)
    # what is stated counts headers too
    assert 0.8 * stated < pages.total <= stated and 700 <= pages.values <= 1400


def test_columns_that_share_their_pages_and_headers_without_end_are_refused(tmp_path):
    chunks = [{7: 60, 9: 4}] * 5
    header = b"\x15\x00\x15" + padded(10, 1) + b"\x15" + padded(50, 1) + b"\x2c\x15\x02\x00\x00"
    with pytest.raises(Bomb, match="are the same"):
        measured(io.BytesIO(b"PAR1" + header + bytes(60)), chunks, 64)
    with pytest.raises(Bomb, match="the header of a page has more than"):
        measured(io.BytesIO(b"PAR1" + b"\x19\xf3\xff\xff\xff\xff\x0f" + bytes(1 << 21)), chunks, 64)
    assert (
        measured(
            io.BytesIO(b"PAR1" + b"\x19\xf3\xff\xff\xff\xff\x0f" + bytes(60)), chunks, 64
        ).total
        == 0
    )


SIZES = b"\x15" + padded(3000, 2) + b"\x15" + padded(10, 1)


@pytest.mark.parametrize(
    "more",
    [
        b"\x9b\x02\x58" + b"\1\4\2\6",
        b"\x9b\x00",
        b"\x9c" + 30 * b"\x1c" + 31 * b"\0",
        b"\x95\x02\x09\x04" + b"\x18\1\0",
    ],
    ids=["a map", "an empty map", "deep structs", "a list where a number belongs"],
)
def test_what_pyarrow_passes_over_in_a_header_hides_no_page(more):
    header = b"\x15\x00" + SIZES + more + b"\0"
    assert (
        measured(
            io.BytesIO(b"PAR1" + header + bytes(10)), [{7: len(header) + 10, 9: 4}], 99
        ).largest
        == 3000
    )


def test_a_field_that_stands_twice_is_refused():
    """pyarrow takes parts of both."""
    with pytest.raises(Bomb, match="stands twice"):
        measured(
            io.BytesIO(b"PAR1\x15\x00" + SIZES + b"\x05\x06\x02\0" + bytes(10)), [{7: 60, 9: 4}], 99
        )
