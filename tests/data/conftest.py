"""Pictures that tests make: folders, shards and imported stores."""

import io
import json
import multiprocessing
import tarfile
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from tests.web_site import site  # noqa: F401

COLOURS = {
    "red": (200, 30, 30),
    "blue": (30, 40, 200),
    "green": (40, 160, 60),
    "yellow": (220, 210, 40),
}


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
