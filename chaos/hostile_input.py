"""Who reads what the world hands us, each with sound inputs to begin from: phrases, shards,
pictures, checkpoints."""

import io
import json
import socket
import struct
import tarfile
from contextlib import suppress
from pathlib import Path
from socketserver import BaseServer
from typing import cast

import numpy as np
import torch
from PIL import Image

from chaos.hostile_tables import MORE
from chaos.reader_target import Target
from fulcrum.data.caption_quality import languages
from fulcrum.data.readers import pictures as fit_picture
from fulcrum.data.readers import shards as untrusted_archive
from fulcrum.data.readers.reader import ANY, captions_of, open_given, sidecar
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import read_records, read_tail, sealed, sha256_bytes
from fulcrum.judge.schema import StudyResult
from fulcrum.judge.serve import Handler
from fulcrum.levers.catalog import read_phrase
from fulcrum.measure import pictures as decoded_picture
from fulcrum.measure.pictures import PictureSet
from fulcrum.spec.errors import FulcrumError, shown_lines
from fulcrum.studies import plan_file
from fulcrum.training import checkpoint
from fulcrum.training.interop import diffusers


def _phrase(data: bytes, folder: Path) -> None:
    phrase, _ = read_phrase(data.decode("utf-8", "surrogateescape"))
    phrase.run.model_dump_json()


def _setting(data: bytes, folder: Path) -> None:
    read_phrase("spark", settings=[data.decode("utf-8", "surrogateescape")])


def _plan(data: bytes, folder: Path) -> None:
    (folder / "plan.toml").write_bytes(data)
    plan_file.load(folder / "plan.toml")


def _sidecar(data: bytes, folder: Path) -> None:
    plain, _, text = data.partition(b"\0\0")
    captions_of(sidecar(text or None, plain or None), ANY)


def _caption(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    languages(text)
    shown_lines(text)


def _shard(data: bytes, folder: Path) -> None:
    for member in untrusted_archive.members(io.BytesIO(data), len(data)):
        member.read() if member.is_file else member.fault


def _folder(data: bytes, folder: Path) -> None:
    (folder / "pictures.tar").write_bytes(data)
    for given in open_given(str(folder / "pictures.tar")):
        str(given)


def _picture(data: bytes, folder: Path) -> None:
    fit_picture.fit(fit_picture.decode(data).image, (32, 32))


def _records(data: bytes, folder: Path) -> None:
    (folder / "record.jsonl").write_bytes(data)
    read_records(folder / "record.jsonl")
    read_tail(folder / "record.jsonl")


def _checkpoint(data: bytes, folder: Path) -> None:
    """Sealed anew, with checksums that fit, as far as it is JSON: else the seal alone would be
    tried, a million times."""
    place = folder / "000000000096"
    place.mkdir(exist_ok=True)
    state, _, tensors = data.partition(b"\0\0\0\0")
    for part in checkpoint.PARTS:
        (place / f"{part}.safetensors").write_bytes(tensors)
    with suppress(ValueError, RecursionError, TypeError, AttributeError, LookupError):
        about = json.loads(state)
        about["files"].update(
            (part, sha256_bytes(tensors)) for part in checkpoint.PARTS if part in about["files"]
        )
        state = json.dumps(sealed(about)).encode()
    (place / "state.json").write_bytes(state)
    checkpoint.require_same(
        checkpoint.verified(place), {part: {"w": torch.zeros(2, 2)} for part in checkpoint.PARTS}
    )
    checkpoint.load(place)


def _state() -> bytes:
    """A sound state.json of a checkpoint whose parts hold one tensor."""
    state = {"images": 96, "skipped": 1, "seconds": 1.5, "preparing": 0.5}
    files = dict.fromkeys(checkpoint.PARTS, "")
    return json.dumps(
        {"key": "0" * 16, "state": state, "system": {}, "images": 96, "files": files}
    ).encode()


def _pipeline(data: bytes, folder: Path) -> None:
    (folder / "config.json").write_bytes(b'{"_class_name": "PRXTransformer2DModel"}')
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(data)
    diffusers.tensors(folder)


def _report(data: bytes, folder: Path) -> None:
    StudyResult.model_validate_json(data)


def _measured(data: bytes, folder: Path) -> None:
    """What `fulcrum measure` looks at: arrays by how they begin, else a picture."""
    suffix = ".npz" if data[:1] == b"P" else ".npy" if data[:1] == b"\x93" else ""
    if not suffix:
        decoded_picture.decode(data)
        return
    path = folder / f"measured{suffix}"
    path.write_bytes(data)
    pictures = PictureSet(path)
    for stored in pictures:
        with suppress(decoded_picture.BadPicture):
            pictures.decode(stored)


def _request(data: bytes, folder: Path) -> None:
    """What a browser, or somebody else, sends to the page's server; the answer may hold nothing
    from beside its folder."""
    site = folder / "site"
    if not site.exists():
        site.mkdir()
        (site / "report.html").write_text("the page")
        (folder / "secret.txt").write_text(SECRET)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(1.0)
        theirs.sendall(data[:32_000])
        theirs.shutdown(socket.SHUT_WR)
        # it asks its server nothing
        Handler(ours, ("127.0.0.1", 1), cast(BaseServer, None), directory=str(site))
        ours.close()
        answer = b""
        # it closed before it had read all that was sent, as a server may
        with suppress(ConnectionResetError):
            while part := theirs.recv(1 << 16):
                answer += part
    if SECRET.encode() in answer:
        raise RuntimeError("the answer holds a file from outside of the served folder")


def _result() -> bytes:
    """A small study's, as it is kept."""
    result, facts = (
        json.loads((KEPT / name).read_bytes()) for name in ("result.json", "kept.json")
    )
    return json.dumps({**result, "made": facts["made"]}).encode()


def _arrays() -> list[bytes]:
    pictures, streams = (
        np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3),
        [io.BytesIO(), io.BytesIO(), io.BytesIO()],
    )
    np.savez(streams[0], pictures)
    np.savez_compressed(streams[1], arr_0=pictures)
    np.save(streams[2], pictures)
    return [stream.getvalue() for stream in streams]


def _png(mode: str, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(48 * 40 * 3, dtype=np.uint8).reshape(40, 48, 3)).convert(mode).save(
        stream, kind
    )
    return stream.getvalue()


def _tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in (
            ("0.png", _png("RGB")),
            ("0.txt", b"a red circle"),
            ("1.jpg", _png("L", "JPEG")),
            ("1.json", b"{}"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _safetensors(rows: str = "") -> bytes:
    about = {"__metadata__": {"rows": rows}} if rows else {}
    header = json.dumps(
        {**about, "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


SECRET = "what nobody may read"
ROOT = Path(__file__).resolve().parent.parent
PLANS, KEPT = ROOT / "examples", ROOT / "docs" / "evidence" / "replication_mislabels"
LEVERS = (
    b"muon",
    b"tread(drop=0.5)",
    b"repa(until=0.5)",
    b" + ",
    b"(",
    b")",
    b",",
    b"=",
    b"bf16_op(op=norm)",
    b"1e308",
    b"-0",
)
JSON = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b"null",
    b"1e400",
    b"NaN",
    b"\\ud800",
    b"true",
    b"[[[[[[[[",
)

TARGETS = (
    Target(
        "phrases",
        [b"spark", b"pocket + muon + tread(drop=0.5)", b"spark + repa(until=0.5)"],
        _phrase,
        words=LEVERS,
    ),
    Target(
        "settings",
        [b"optim.lr=0.01", b"data.source.count=64", b"flow.time=uniform()"],
        _setting,
        words=LEVERS,
    ),
    Target(
        "plans",
        [path.read_bytes() for path in sorted(PLANS.glob("*.toml"))],
        _plan,
        words=(*JSON, *LEVERS, b"seeds", b"="),
    ),
    Target(
        "sidecars",
        [
            b'{"captions": {"long": "a red circle", "short": ["circle"]}}\0\0',
            b"\0\0a red circle",
            b'{"caption": "x"}\0\0y',
        ],
        _sidecar,
        (ValueError,),
        JSON,
    ),
    Target(
        "captions",
        [
            b"a red circle at the top left.",
            "ein Kreis, über".encode(),
            b"\x1b[31m \x00 \xe2\x80\xae",
        ],
        _caption,
        (),
    ),
    Target("tar shards", [_tar()], _shard, (untrusted_archive.Broken,)),
    Target("shards as they are imported", [_tar()], _folder, (FulcrumError, ValueError)),
    Target(
        "pictures",
        [
            _png("RGB"),
            _png("L"),
            _png("P"),
            _png("RGB", "JPEG"),
            _png("RGB", "GIF"),
            _png("RGB", "WEBP"),
            _png("RGB", "BMP"),
            _png("RGB", "TIFF"),
            _png("RGB", "PPM"),
        ],
        _picture,
        (fit_picture.BadSample,),
    ),
    Target(
        "records", [b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n'], _records, words=JSON
    ),
    Target(
        "checkpoints",
        [
            _state() + b"\0\0\0\0" + tensors
            for tensors in (_safetensors(), _safetensors('{"w": [0, 2]}'))
        ],
        _checkpoint,
        (Damaged,),
        (*JSON, b'{\\"w\\": [0, 2]}', b"rows", b"-5"),
    ),
    Target("safetensors", [_safetensors()], _pipeline, words=JSON),
    Target(
        "metric inputs",
        [*_arrays(), _png("RGB"), _png("LA"), _png("P")],
        _measured,
        (FulcrumError, decoded_picture.BadPicture),
        (
            b"descr",
            b"fortran_order",
            b"shape",
            b"(1, 99999999, 8, 3)",
            b"|O",
            b"<f8",
            b"PK\x03\x04",
        ),
    ),
    Target(
        "HTTP requests",
        [
            b"GET / HTTP/1.1\r\nHost: localhost:1\r\n\r\n",
            b"HEAD /report.html?x=1 HTTP/1.0\r\nHost: 127.0.0.1\r\nRange: bytes=0-9\r\n\r\n",
            b"GET /../secret.txt HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
        ],
        _request,
        (),
        (
            b"\r\n",
            b"%2e%2e/",
            b"%00",
            b"..%2fsecret.txt",
            b"HTTP/9.9",
            b"Content-Length: -1\r\n",
            b"POST",
            b"If-Modified-Since: x\r\n",
        ),
    ),
    Target("report JSON", [_result()], _report, (ValueError,), JSON),
    *MORE,
)
