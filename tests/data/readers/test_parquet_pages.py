"""Pages of Parquet files are measured by their own headers before pyarrow makes room for them."""

import io

import pytest

from fulcrum.data.readers import parquet as given_parquet
from fulcrum.data.readers.parquet_pages import Bomb, measured, unfolded
from fulcrum.data.readers.reader import open_given
from fulcrum.spec.errors import BadInput

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


def read(path):
    return list(open_given(str(path)))


def padded(number, length):
    """A number as Thrift writes it, in as many bytes as asked for."""
    parts = [number * 2 >> 7 * place & 127 for place in range(length)]
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


def spoilt(path, old, new, footer):
    """The number written over, in the head of the file (which stands at its end) or in its pages."""
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


@pytest.mark.parametrize(("limit", "most"), [("MOST_PAGE", 100_000), ("MOST_VALUES", 19)])
def test_one_page_that_is_too_large_is_refused(make, tmp_path, monkeypatch, limit, most):
    rows = pyarrow.table({"image": [make.picture(0) * 100] * 20, "caption": ["x"] * 20})
    parquet.write_table(rows, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    assert len(read(tmp_path)) == 20
    monkeypatch.setattr(given_parquet, limit, most)
    with pytest.raises(BadInput, match="has pages of up to"):
        read(tmp_path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("folded", ["none", "snappy", "zstd", "gzip"])
def test_pages_are_measured_as_they_were_written(tmp_path, version, folded):
    texts = [f"{number % 50} {'word ' * 300}" for number in range(2000)]
    rows = pyarrow.table({"text": texts, "number": range(2000), "list": [[1.5, None]] * 2000, "none": [None] * 2000})
    how = {"compression": folded, "data_page_version": version, "data_page_size": 4096, "row_group_size": 700}
    parquet.write_table(rows, tmp_path / "x", write_page_checksum=True, **how)
    about = parquet.ParquetFile(tmp_path / "x").metadata
    stated = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    with (tmp_path / "x").open("rb") as stream:
        pages = unfolded(stream)
    assert 0.8 * stated < pages.total <= stated and 700 <= pages.values <= 1400  # what is stated counts headers too


def test_columns_that_share_their_pages_and_headers_without_end_are_refused(tmp_path):
    chunks = [{7: 60, 9: 4}] * 5
    header = b"\x15\x00\x15" + padded(10, 1) + b"\x15" + padded(50, 1) + b"\x2c\x15\x02\x00\x00"
    with pytest.raises(Bomb, match="are the same"):
        measured(io.BytesIO(b"PAR1" + header + bytes(60)), chunks, 64)
    with pytest.raises(Bomb, match="the header of a page has more than"):
        measured(io.BytesIO(b"PAR1" + b"\x19\xf3\xff\xff\xff\xff\x0f" + bytes(1 << 21)), chunks, 64)
    assert measured(io.BytesIO(b"PAR1" + b"\x19\xf3\xff\xff\xff\xff\x0f" + bytes(60)), chunks, 64).total == 0
