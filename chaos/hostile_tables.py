"""Tables of captions, Parquet files of pictures, and what is asked of the gallery, for the readers
of `hostile_input`."""

import io
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from socketserver import BaseServer
from typing import cast

import pyarrow
from PIL import Image
from pyarrow import parquet

from chaos.reader_target import Target
from fulcrum.cli.gallery.runs import Collection, OpenModels
from fulcrum.cli.gallery.server import DrawingDesk, GalleryHandler
from fulcrum.data.readers.reader import open_given


def _table(data: bytes, folder: Path) -> None:
    """A table beside a picture, of a kind that its beginning tells."""
    place = folder / "tabled"
    if not place.exists():
        place.mkdir()
        (place / "0.png").write_bytes(_picture())
    table = (
        folder
        / f"table{'.parquet' if data[:1] == b'P' else '.jsonl' if data[:1] == b'{' else '.csv'}"
    )
    table.write_bytes(data)
    for given in open_given(str(place), table=str(table)):
        str(given)


def _pictures(data: bytes, folder: Path) -> None:
    (folder / "pictures.parquet").write_bytes(data)
    for given in open_given(str(folder / "pictures.parquet")):
        str(given)


def _asked(data: bytes, folder: Path) -> None:
    """What a browser, or somebody else, sends to a gallery."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(1.0)
        theirs.sendall(data[:32_000])
        theirs.shutdown(socket.SHUT_WR)
        GalleryHandler(_desk(), ["a red circle"], ours, ("127.0.0.1", 1), cast(BaseServer, None))
        ours.close()
        with suppress(ConnectionResetError):
            while theirs.recv(1 << 16):
                pass


@cache
def _desk() -> DrawingDesk:
    """Of a gallery in which nothing hangs: what is asked is read, and nothing is drawn."""
    return DrawingDesk(Collection("empty", ()), OpenModels())


def _picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    return stream.getvalue()


def _parquet(columns: dict[str, list[object]], folded: str) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), stream, compression=folded)
    return stream.getvalue()


def _request(body: bytes) -> bytes:
    head = (
        b"POST /draw HTTP/1.1\r\nHost: localhost:1\r\nContent-Type:"
        b" application/json\r\nContent-Length: "
    )
    return head + str(len(body)).encode() + b"\r\n\r\n" + body


CAPTIONS: dict[str, list[object]] = {"file": ["0.png", "1.png"], "caption": ["zero", "one"]}
PICTURES: dict[str, list[object]] = {"image": [_picture()] * 3, "text": ["a", "b", "c"]}
DRAWING = (
    b'{"page": "a", "prompt": "a red circle", "seed": 1, "count": 2, "columns": [{"key":'
    b' "0123456789abcdef", "at": 5}]}'
)
PIECES = (
    b"file",
    b"caption",
    b",",
    b'"',
    b"\n",
    b"PAR1",
    b"../",
    b"{",
    b"}",
    b"null",
    b"\x15\x04",
    b"\xff\xff\xff\xff\x0f",
)

MORE = (
    Target(
        "tables",
        [
            b'file,caption\n0.png,"a, b"\n',
            b'{"file": "0.png", "caption": "zero"}\n{"file": "1.png", "caption": ["x"]}\n',
            _parquet(CAPTIONS, "none"),
            _parquet(CAPTIONS, "zstd"),
        ],
        _table,
        words=PIECES,
    ),
    Target(
        "parquet pictures",
        [_parquet(PICTURES, folded) for folded in ("none", "snappy", "zstd")],
        _pictures,
        words=PIECES,
    ),
    Target(
        "requests to the gallery",
        [
            _request(DRAWING),
            _request(DRAWING.replace(b'"seed"', b'"steps"')),
            b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n",
            b"GET /picture/" + b"0" * 64 + b"-0 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
        ],
        _asked,
        (),
        (
            b"\r\n",
            b"Content-Length: 99999999\r\n",
            b"/study",
            b"%2e%2e/",
            b"1e400",
            b"NaN",
            b"\\ud800",
            b"[[[[[[[[",
            b"-1",
        ),
    ),
)
