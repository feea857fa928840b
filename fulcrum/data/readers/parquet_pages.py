"""What the pages of a Parquet file say that they unfold to, read before anything is unfolded.

pyarrow makes room for whatever a page's header says, up to 2 GB, and looks at no sum: the head of a file may say less.
Head and headers are Thrift's compact protocol; of each we keep a few numbers, and of the rest, which is passed over,
nothing is built. No pyarrow in here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

_USUAL, _LONGEST = 1 << 12, 1 << 20  # bytes of a header; it may hold the least and the largest value
DEEPEST = 64  # structs within each other; a header has three, and pyarrow reads no more than these
MOST_FIELDS = 1 << 23  # values of the file's head, two seconds; 10,000 row groups of 10 columns have half as many
MOST_FOLD = 4  # a page that unfolds to so many times its bytes in the file hardly shrank: those had to be sent
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_WIDTHS = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}  # bytes of one in a list
_UNFOLDED, _FOLDED, _VALUES = 2, 3, 1  # fields of a header, and the first of each struct in it
_GROUPS, _COLUMNS, _ABOUT = 4, 1, 3  # fields of the file's head, of a row group, of a column
_LENGTH, _DATA_AT, _DICTIONARY_AT = 7, 9, 11  # fields of what a column says of itself
_ABOUT_VALUES = (5, 7, 8)  # fields that hold these structs: data, dictionary, data of version 2

Kept = Mapping[tuple[int, int], "Kept"]  # fields of a struct that are kept, by number and kind; of each what is kept within
_PLACE: Kept = {(field, _I64): {} for field in (_LENGTH, _DATA_AT, _DICTIONARY_AT)}
_HEAD: Kept = {(_GROUPS, _LIST): {(_COLUMNS, _LIST): {(_ABOUT, _STRUCT): _PLACE}}}
_HEADER: Kept = {
    **{(field, _I32): {} for field in (_UNFOLDED, _FOLDED)},
    **{(field, _STRUCT): {(_VALUES, _I32): {}} for field in _ABOUT_VALUES},
}


class Page(NamedTuple):
    folded: int  # bytes in the file
    unfolded: int  # bytes in memory
    values: int


class Unfolded(NamedTuple):
    """Of all pages of a file."""

    total: int  # bytes
    largest: int  # bytes of one page: it is held as a whole
    values: int  # of one page: decoders make room for as many
    shrunk: Page  # the largest of those that unfold to more than MOST_FOLD times their bytes


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
        groups = _Thrift(stream.read(length)).struct(_HEAD).get(_GROUPS, [])
        chunks = [column[_ABOUT] for group in groups for column in group[_COLUMNS]]
        return measured(stream, chunks, size)
    except (LookupError, TypeError) as error:
        raise ValueError("its head is damaged") from error


def measured(stream: IO[bytes], chunks: Sequence[Mapping[int, Any]], size: int) -> Unfolded:
    total = largest = values = folded = 0
    shrunk = Page(0, 0, 0)
    for chunk in chunks:
        for page in _pages(stream, chunk):
            folded += page.folded + 1  # its header has a byte at least
            if folded > size:
                raise Bomb("pages of several columns are the same")
            total, largest, values = total + page.unfolded, max(largest, page.unfolded), max(values, page.values)
            if page.unfolded > max(shrunk.unfolded, MOST_FOLD * page.folded):
                shrunk = page
    return Unfolded(total, largest, values, shrunk)


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
    header = _Thrift(stream.read(_USUAL))
    try:
        numbers = header.struct(_HEADER)
    except IndexError:
        header = _Thrift(header.data + stream.read(_LONGEST - _USUAL))
        try:
            numbers = header.struct(_HEADER)
        except IndexError:
            if len(header.data) < _LONGEST:
                raise ValueError("the file ends in a header") from None
            raise Bomb(f"the header of a page has more than {_LONGEST:,} bytes") from None
    kinds = [kind for field in _ABOUT_VALUES if isinstance(kind := numbers.get(field), dict)]
    counts = [kind.get(_VALUES, 0) for kind in kinds]
    values = max((count for count in counts if isinstance(count, int)), default=0)
    folded, unfolded = numbers.get(_FOLDED), numbers.get(_UNFOLDED)
    if not isinstance(folded, int) or not isinstance(unfolded, int) or min(folded, unfolded, values) < 0:
        raise ValueError("no header of a page")
    return Page(folded, unfolded, values), header.at


class _Thrift:
    """Reads on from one place of the bytes; an IndexError where they end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.left = data, 0, MOST_FIELDS

    def struct(self, kept: Kept, depth: int = 0) -> dict[int, Any]:
        """Its numbers, structs and lists of structs, by their field: those that are kept."""
        if depth > DEEPEST:
            raise ValueError("too deep")
        values: dict[int, Any] = {}
        field = 0
        while head := self.data[self.at]:
            self.at += 1
            self.left -= 1
            step, kind = head >> 4, head & 15
            field = field + step if step else self._number()
            if self.left < 0:
                raise self._too_many()
            within = kept.get((field, kind))
            if within is None:  # one of another kind pyarrow passes over too
                self._skip(kind, depth)
            elif field in values:
                raise Bomb("a field stands twice")
            elif kind == _STRUCT:
                values[field] = self.struct(within, depth + 1)
            elif kind == _LIST:  # of structs, whatever it says: pyarrow does not look
                values[field] = [self.struct(within, depth + 1) for _ in range(self._list()[0])]
            else:
                values[field] = self._number()
        self.at += 1
        return values

    def _skip(self, kind: int, depth: int) -> None:
        """The value of a field."""
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind == _STRUCT:
            self.struct({}, depth + 1)
        elif kind in (_LIST, _SET):
            self._skip_all(*self._list(), depth=depth + 1)
        elif kind == _MAP:
            self._skip_map(depth + 1)
        elif kind in (_BYTE, _DOUBLE):
            self.at += _WIDTHS[kind]
        elif kind not in (_TRUE, _FALSE):  # whose value is their kind
            raise ValueError("no header of a page")

    def _skip_map(self, depth: int) -> None:
        count = self._varint()
        if count:
            kinds = self.data[self.at]
            self.at += 1
            self._count(2 * count)
            for _ in range(count):
                self._skip_all(1, kinds >> 4, depth)
                self._skip_all(1, kinds & 15, depth)

    def _skip_all(self, count: int, kind: int, depth: int) -> None:
        """The values of a list."""
        if depth > DEEPEST:
            raise ValueError("too deep")
        if kind in _WIDTHS:
            self.at += count * _WIDTHS[kind]
        else:
            for _ in range(count):
                self._skip(kind, depth)

    def _list(self) -> tuple[int, int]:
        """How many, and of what kind."""
        head = self.data[self.at]
        self.at += 1
        count = head >> 4 if head >> 4 < 15 else self._varint()
        self._count(count)
        return count, head & 15

    def _count(self, values: int) -> None:
        """Of a list, before it is gone through."""
        if values > len(self.data) - self.at:
            raise IndexError("each has a byte at least")
        self.left -= values
        if self.left < 0:
            raise self._too_many()

    def _too_many(self) -> Bomb:
        return Bomb(f"its head holds more than {MOST_FIELDS:,} values; larger row groups need fewer")

    def _varint(self) -> int:
        number = self.data[self.at]
        self.at += 1
        if number < 128:  # most are
            return number
        number &= 127
        for shift in range(7, 70, 7):
            part = self.data[self.at]
            self.at += 1
            number |= (part & 127) << shift
            if part < 128:
                return number
        raise ValueError("a number without end")

    def _number(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)
