"""Pictures that tests make: folders, shards and imported stores; and a web server to fetch them from."""

import hashlib
import io
import json
import multiprocessing
import tarfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fulcrum.data.readers import shelf
from fulcrum.data.readers.reader import open_given
from fulcrum.data.store.completion import run_import
from fulcrum.data.store.importing import Options

COLOURS = {"red": (200, 30, 30), "blue": (30, 40, 200), "green": (40, 160, 60), "yellow": (220, 210, 40)}


def picture_bytes(number=0, size=(24, 16), encoding="PNG", mode="RGB", **options):
    """A picture whose pixels depend on its number."""
    noise = np.random.default_rng(number).integers(0, 60, (size[1], size[0], 3))
    colour = list(COLOURS.values())[number % len(COLOURS)]
    pixels = np.clip(noise + np.array(colour), 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, encoding, **options)
    return stream.getvalue()


def caption(number):
    return f"a large {list(COLOURS)[number % len(COLOURS)]} square in the centre"


def write_folder(folder, count=12, size=(24, 16), first=0):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        (folder / f"{number:04d}.png").write_bytes(picture_bytes(number, size))
        (folder / f"{number:04d}.txt").write_text(caption(number))
    return folder


def write_tar(path, members, mode="w"):
    """members: (name, bytes), or a TarInfo for what is no file."""
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def as_img2dataset(numbers, size=(24, 16)):
    """What img2dataset writes: jpg, json and txt under one key."""
    for number in numbers:
        key = f"{number:09d}"
        yield f"{key}.jpg", picture_bytes(number, size, "JPEG", quality=90)
        yield (
            f"{key}.json",
            json.dumps(
                {
                    "caption": caption(number),
                    "url": "https://example.org",
                    "key": key,
                    "status": "success",
                    "width": size[0],
                    "height": size[1],
                }
            ).encode(),
        )
        yield f"{key}.txt", caption(number).encode()


def imported(source, to, **options):
    options = {"size": 16, "hold_out": 0.1, **options}
    run_import(open_given(str(source)), to, Options(**options), lambda text: None)
    return to


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """An imported store of 40 pictures in shards of 16; read only."""
    place = tmp_path_factory.mktemp("store")
    return imported(write_folder(place / "given", 40), place / "store", shard=16)


@pytest.fixture(scope="session")
def make():
    """The functions above, for test files."""
    return SimpleNamespace(
        picture=picture_bytes,
        caption=caption,
        folder=write_folder,
        tar=write_tar,
        img2dataset=as_img2dataset,
        imported=imported,
    )


@pytest.fixture(scope="session")
def elsewhere():
    """Call something in another process, which opens sources itself."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
        yield lambda call, *given: pool.submit(call, *given).result()


class Site:
    """A web server on this machine: path -> bytes, with faults on request."""

    def __init__(self):
        self.files, self.asked, self.faults, self.slow = {}, [], [], 0.0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(send=False)

            def do_GET(self):
                self.answer(send=True)

            def answer(self, send):
                path = self.path.split("?")[0]
                site.asked.append((self.command, path))
                data = site.files.get(path)
                if data is None or (self.command == "HEAD" and "no head" in site.faults):
                    return self.send_error(404 if data is None else 405)
                passing = send and site.faults and not {"no head", "no tag"} & set(site.faults)
                fault = site.faults.pop(0) if passing else ""
                if fault == "busy":
                    return self.send_error(503)
                self.send_response(200)
                if "no length" not in (fault, *site.faults):
                    self.send_header("Content-Length", str(len(data)))
                if "no tag" not in site.faults:
                    self.send_header("ETag", hashlib.md5(data).hexdigest())
                self.end_headers()
                if send:
                    sent = data[: len(data) // 2] if fault == "cut" else data
                    for first in range(0, len(sent), 1 << 16):
                        time.sleep(site.slow)
                        self.wfile.write(sent[first : first + (1 << 16)])

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def gets(self):
        return [path for command, path in self.asked if command == "GET"]


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(shelf, "PAUSE", 0.01)
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()
