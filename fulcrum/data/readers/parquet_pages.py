"""What the pages of a Parquet file say that they unfold to, read before anything is unfolded.

pyarrow makes room for whatever a page's header says, up to 2 GB, and looks at no sum: the head of a file may say less.
Headers are Thrift's compact protocol; of one we need three numbers, the rest is passed over. No pyarrow in here.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

_USUAL, _LONGEST = 1 << 12, 1 << 20  # bytes of a header; it may hold the least and the largest value
DEEPEST = 16  # structs within each other; a header has three
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_UNFOLDED, _FOLDED, _VALUES = 2, 3, 1  # fields of a header, and the first of each struct in it
_GROUPS, _COLUMNS, _ABOUT = 4, 1, 3  # fields of the file's head, of a row group, of a column
_LENGTH, _DATA_AT, _DICTIONARY_AT = 7, 9, 11  # fields of what a column says of itself
_ABOUT_VALUES = (5, 7, 8)  # fields that hold these structs: data, dictionary, data of version 2


class Page(NamedTuple):
    folded: int  # bytes in the file
    unfolded: int  # bytes in memory
    values: int


class Unfolded(NamedTuple):
    """Of all pages of a file."""

    total: int  # bytes
    largest: int  # bytes of one page: it is held as a whole
    values: int  # of one page: decoders make room for as many


class Bomb(ValueError):
    """No writer makes such a file."""


def unfolded(stream: IO[bytes]) -> Unfolded:
    """By the headers of the pages of every column of every row group. Where they lie is read here too: pyarrow ends the
    process, by an exception of C++ that nobody catches, when it is asked for a column whose statistics are damaged."""
    size = stream.seek(0, 2)
    stream.seek(max(size - 8, 0))
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(max(size - 8 - length, 0))
    try:
        groups = _struct(io.BytesIO(stream.read(length)), 0).get(_GROUPS, [])
        chunks = [column[_ABOUT] for group in groups for column in group[_COLUMNS]]
        return measured(stream, chunks, size)
    except (EOFError, LookupError, TypeError) as error:
        raise ValueError("its head is damaged") from error


def measured(stream: IO[bytes], chunks: Sequence[Mapping[int, Any]], size: int) -> Unfolded:
    total = largest = values = folded = 0
    for chunk in chunks:
        for page in _pages(stream, chunk):
            folded += page.folded + 1  # its header has a byte at least
            if folded > size:
                raise Bomb("pages of several columns are the same")
            total, largest, values = total + page.unfolded, max(largest, page.unfolded), max(values, page.values)
    return Unfolded(total, largest, values)


def _pages(stream: IO[bytes], chunk: Mapping[int, Any]) -> Iterator[Page]:
    """Of one column of one row group, as far as they can be told apart: what follows pyarrow cannot read either."""
    place, dictionary = chunk[_DATA_AT], chunk.get(_DICTIONARY_AT, 0)
    if 0 < dictionary < place:
        place = dictionary
    end = place + chunk[_LENGTH]
    while 0 <= place < end:
        try:
            stream.seek(place)
            page, length = _header(stream)
        except Bomb:
            raise
        except (ValueError, OverflowError, OSError):
            return
        yield page
        place += length + page.folded


def _header(stream: IO[bytes]) -> tuple[Page, int]:
    """And how many bytes it takes."""
    data = io.BytesIO(stream.read(_USUAL))
    try:
        numbers = _struct(data, 0)
    except EOFError:
        data = io.BytesIO(data.getvalue() + stream.read(_LONGEST - _USUAL))
        try:
            numbers = _struct(data, 0)
        except EOFError:
            if data.getbuffer().nbytes < _LONGEST:
                raise ValueError("the file ends in a header") from None
            raise Bomb(f"the header of a page has more than {_LONGEST:,} bytes") from None
    kinds = [kind for field in _ABOUT_VALUES if isinstance(kind := numbers.get(field), dict)]
    counts = [kind.get(_VALUES, 0) for kind in kinds]
    values = max((count for count in counts if isinstance(count, int)), default=0)
    folded, unfolded = numbers.get(_FOLDED), numbers.get(_UNFOLDED)
    if not isinstance(folded, int) or not isinstance(unfolded, int) or min(folded, unfolded, values) < 0:
        raise ValueError("no header of a page")
    return Page(folded, unfolded, values), data.tell()


def _struct(stream: IO[bytes], depth: int) -> dict[int, Any]:
    """Its numbers, structs and lists of structs, by their field."""
    if depth > DEEPEST:
        raise ValueError("too deep")
    values: dict[int, Any] = {}
    field = 0
    while head := _byte(stream):
        step, kind = head >> 4, head & 15
        field = field + step if step else _number(stream)
        if kind in (_I16, _I32, _I64):
            values[field] = _number(stream)
        elif kind == _STRUCT:
            values[field] = _struct(stream, depth + 1)
        elif kind == _LIST:
            count, of = _list(stream)
            if of == _STRUCT:
                values[field] = [_struct(stream, depth + 1) for _ in range(count)]
            else:
                for _ in range(count):
                    _skip(stream, of, depth + 1)
        elif kind not in (_TRUE, _FALSE):  # whose value is their kind
            _skip(stream, kind, depth)
    return values


def _list(stream: IO[bytes]) -> tuple[int, int]:
    """How many, and of what kind."""
    head = _byte(stream)
    return head >> 4 if head >> 4 < 15 else _varint(stream), head & 15


def _skip(stream: IO[bytes], kind: int, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError("too deep")
    if kind in (_TRUE, _FALSE, _BYTE):  # of a list
        _byte(stream)
    elif kind in (_I16, _I32, _I64):
        _varint(stream)
    elif kind == _DOUBLE:
        for _ in range(8):
            _byte(stream)
    elif kind == _BINARY:
        stream.seek(_varint(stream), 1)
    elif kind in (_LIST, _SET):
        count, of = _list(stream)
        for _ in range(count):
            _skip(stream, of, depth + 1)
    elif kind == _STRUCT:
        _struct(stream, depth + 1)
    else:  # a map, of which there is none in a header
        raise ValueError("no header of a page")


def _byte(stream: IO[bytes]) -> int:
    data = stream.read(1)
    if not data:
        raise EOFError
    return data[0]


def _varint(stream: IO[bytes]) -> int:
    number = 0
    for shift in range(0, 70, 7):
        part = _byte(stream)
        number |= (part & 127) << shift
        if part < 128:
            return number
    raise ValueError("a number without end")


def _number(stream: IO[bytes]) -> int:
    number = _varint(stream)
    return (number >> 1) ^ -(number & 1)
