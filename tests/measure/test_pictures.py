"""What is read of folders, shards and arrays; what is refused by name, what is counted and told."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.folders import Pass, compare
from fulcrum.measure.metrics.distances import DISTANCES, KID
from fulcrum.measure.pictures import BadPicture, PictureSet, decode, read_colour
from fulcrum.spec.errors import BadInput
from tests.measure.drawn import Counting, N, encoded, folder, look, pictures

BAD = {
    "cut off": (lambda image: encoded(image)[:200], "damaged or cut off"),
    "no picture": (lambda image: b"hello, this is text", "not a picture that can be read"),
    "empty": (lambda image: b"", "not a picture that can be read"),
    "transparent": (
        lambda image: encoded(np.dstack([image, np.full(image.shape[:2], 90, np.uint8)])),
        "transparent",
    ),
    "16 bit": (lambda image: encoded(image[:, :, 0].astype(np.uint16) * 200), "more than 8 bits"),
    "other size": (
        lambda image: encoded(image[:10]),
        "16 x 10 pixels, and those before it 16 x 16",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_pictures_are_named_or_skipped_and_counted(case: str, tmp_path: Path) -> None:
    make, says = BAD[case]
    images = pictures(1)
    path = folder(tmp_path / "a", images)
    (path / "0040.png").write_bytes(make(images[40]))
    with pytest.raises(BadInput, match="0040.png") as error:
        look(path, tmp_path / "cache")
    assert says in str(error.value)
    seen = look(path, tmp_path / "cache", skip_bad=True)
    assert seen.n == N - 1 and len(seen.skipped) == 1 and says in seen.skipped[0][1]
    assert seen.about()["skipped"][0]["file"].endswith("0040.png")


def test_what_changes_nothing_is_told_and_counted(tmp_path: Path) -> None:
    images = pictures(1)
    path = folder(tmp_path / "a", images)
    (path / "0001.png").write_bytes(encoded(images[1][:, :, 0]))
    Image.fromarray(images[2]).convert("P").save(path / "0002.png")
    (path / "0003.png").write_bytes(
        encoded(np.dstack([images[3], np.full((16, 16), 255, np.uint8)]))
    )
    (path / "notes.md").write_text("not a picture")
    seen = look(path, tmp_path / "cache")
    assert seen.notes == {"grayscale": 1, "palette": 1, "opaque alpha": 1} and seen.n == N
    assert seen.ignored == {"other files": 1}
    assert look(path, tmp_path / "cache").notes == seen.notes  # remembered with the features


def test_colours_and_depths_that_are_not_ours_to_convert() -> None:
    image = pictures(1)[0]
    stream = io.BytesIO()
    Image.fromarray(image).convert("CMYK").save(stream, "JPEG")
    with pytest.raises(BadPicture, match="colours are CMYK"):
        decode(stream.getvalue())
    deep = b"P6 2 1 65535\n" + bytes(12)  # Pillow would cut it to 8 bits without a word
    with pytest.raises(BadPicture, match="more than 8 bits"):
        decode(deep)
    frames = io.BytesIO()
    Image.fromarray(image).save(
        frames, "GIF", save_all=True, append_images=[Image.fromarray(255 - image)]
    )
    with pytest.raises(BadPicture, match="several frames"):
        decode(frames.getvalue())
    see_through = encoded(np.dstack([image, np.full((16, 16), 0, np.uint8)]))
    white = decode(see_through, read_colour("white"))
    assert (white.pixels == 255).all() and white.notes == ("alpha over the background",)
    assert (decode(encoded(image)).pixels == image.transpose(2, 0, 1)).all()


def test_sixteen_bit_colour_png() -> None:
    """Written by hand: Pillow cannot write it, and reads it as 8 bit."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0))
    data += chunk(b"IDAT", zlib.compress(b"\0" + bytes(6))) + chunk(b"IEND", b"")
    with pytest.raises(BadPicture, match="more than 8 bits"):
        decode(data)


def test_decompression_bombs_are_refused_by_their_header() -> None:
    import struct

    small = bytearray(encoded(pictures(1)[0]))
    small[16:24] = struct.pack(">II", 60_000, 60_000)
    small[29:33] = struct.pack(">I", __import__("zlib").crc32(bytes(small[12:29])))
    with pytest.raises(BadPicture, match=r"60000 x 60000 pixels|decompression bomb"):
        decode(bytes(small))


def test_archives_reach_nothing_outside(tmp_path: Path) -> None:
    """Members are read in memory: names that climb are only names; links and devices are ignored
    and counted."""
    images = pictures(1)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for number, image in enumerate(images):
            info, data = tarfile.TarInfo(f"../../escaped{number}.png"), encoded(image)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for kind, name in (
            (tarfile.SYMTYPE, "link.png"),
            (tarfile.LNKTYPE, "hard.png"),
            (tarfile.FIFOTYPE, "pipe.png"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    before = sorted(tmp_path.parent.parent.glob("escaped*"))
    seen = look(path, tmp_path / "cache")
    assert seen.n == N and seen.ignored == {"links and devices": 3}
    assert sorted(tmp_path.parent.parent.glob("escaped*")) == before
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(BadInput, match="damaged or no tar"):
        look(path, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["header", "compressed", "encrypted", "method"])
def test_a_damaged_array_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    """As the attack found them: numpy's parser and the decompressors have errors of their own."""
    path = tmp_path / ("x.npy" if damage == "header" else "x.npz")
    if damage == "header":
        np.save(path, pictures(1))
        path.write_bytes(path.read_bytes().replace(b"}", b"("))
    else:
        np.savez_compressed(path, arr_0=pictures(1))
        data = bytearray(path.read_bytes())
        if damage == "compressed":
            data[50:90] = bytes(range(160, 200))
        else:
            for sign, flags, method in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
                at = data.index(sign) + (flags if damage == "encrypted" else method)
                data[at] = 1 if damage == "encrypted" else 99
        path.write_bytes(data)
    with pytest.raises(BadInput, match="cannot be read as an array|is damaged at picture 0"):
        list(PictureSet(path))


def test_arrays_that_are_refused(tmp_path: Path) -> None:
    def says(array, message: str, **more) -> None:
        np.savez(
            tmp_path / "x.npz", **({"images": array} if not isinstance(array, dict) else array)
        )
        with pytest.raises(BadInput, match=message):
            Pass([Comparison(Counting().extractor(), DISTANCES)], tmp_path / "cache", False).look(
                PictureSet(tmp_path / "x.npz", **more)
            )

    says(np.array([{"a": 1}] * 3, dtype=object), "could run code")
    says(pictures(1)[:, :, :, 0], "shape")
    says(pictures(1).astype(np.float32), "declared range")
    says(pictures(1).astype(np.float32) * 2, "declared to lie in", value_range=(0.0, 1.0))
    says(pictures(1).astype(np.int32), "uint8 or floating point")
    says({"mu": np.zeros(3), "sigma": np.zeros((3, 3))}, "an array called images")
    floats = pictures(1).astype(np.float64) / 127.5 - 1
    np.savez(tmp_path / "f.npz", images=floats)
    np.savez(tmp_path / "u.npz", images=pictures(1))
    found = [
        Pass([Comparison(Counting().extractor(), [KID()])], tmp_path / "cache", False)
        .look(PictureSet(path, span))
        .features.gathered
        for path, span in ((tmp_path / "f.npz", (-1.0, 1.0)), (tmp_path / "u.npz", None))
    ]
    (one,), (two,) = (part["colours"].values() for part in found)
    assert torch.equal(one.rows, two.rows)
    (tmp_path / "x.npz").write_bytes(b"PK nonsense")
    with pytest.raises(BadInput, match="cannot be read as an array"):
        look(tmp_path / "x.npz", tmp_path / "cache")


def test_places_without_enough_pictures(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "empty", "holds no pictures"),
        (tmp_path / "nowhere", "nothing at"),
    ):
        with pytest.raises(BadInput, match=message):
            PictureSet(path)
    (tmp_path / "x.doc").write_text("")
    with pytest.raises(BadInput, match="neither a folder"):
        PictureSet(tmp_path / "x.doc")
    one, many = folder(tmp_path / "one", pictures(1, 1)), folder(tmp_path / "many", pictures(2))
    around = look(many, tmp_path / "cache", True)
    with pytest.raises(BadInput, match="holds 1 pictures, and frechet needs at least 64"):
        compare(
            look(one, tmp_path / "cache"), around, [Comparison(Counting().extractor(), DISTANCES)]
        )
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"x")
    with pytest.raises(BadInput, match="no usable picture: 1 were skipped"):
        look(tmp_path / "bad", tmp_path / "cache", skip_bad=True)


def test_symbolic_links(tmp_path: Path) -> None:
    """A link to a folder is not entered, a link to a picture of the set is no second picture, one
    to elsewhere is read."""
    path, other = folder(tmp_path / "a", pictures(1)), folder(tmp_path / "b", pictures(2, 1))
    os.symlink(path, path / "again")
    os.symlink(path / "0001.png", path / "alias.png")
    os.symlink(other / "0000.png", path / "zzz.png")
    seen = look(path, tmp_path / "cache")
    assert seen.n == N + 1 and seen.ignored == {"linked folders": 1, "links within the folder": 1}
    json.dumps(seen.about())


def test_a_caption_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", pictures(1, 2))
    (tmp_path / "secret").write_text("a secret")
    os.symlink(tmp_path / "secret", path / "0001.txt")
    first, second = PictureSet(path)
    assert first.refused is None and second.caption is None
    assert second.refused is not None and "leads out of the folder" in second.refused.why


def test_a_header_without_end_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.png")
    info.pax_headers = {"comment": "x" * 3_000_000}
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    with pytest.raises(
        BadInput, match="damaged or no tar: a member's headers have more than 1,048,576 bytes"
    ):
        list(PictureSet(tmp_path / "x.tar.xz"))
