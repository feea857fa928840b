"""Decoding what nobody vouches for, and fitting it to a shape."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import GifImagePlugin, Image, TiffImagePlugin

from fulcrum.data.readers.pictures import BadSample, buckets, decode, encode, fit, nearest, pixels


def saved(image, encoding="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, encoding, **options)
    return stream.getvalue()


def bomb(side):
    """A PNG of some bytes that says it has side x side pixels."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "data, words",
    [
        (saved(Image.new("RGB", (1, 1))), "too small: 1 x 1"),
        (bomb(100_000), "too many pixels"),
        (b"", "empty"),
        (bomb(9000), "too many pixels: 9000 x 9000"),
        (b"GIF89a, but no picture", "not a picture|damaged"),
        (b"hello", "not a picture"),
        (saved(Image.new("I;16", (32, 32))), "8 bits"),
        (
            saved(
                Image.new("RGB", (16, 16)),
                "GIF",
                save_all=True,
                append_images=[Image.new("RGB", (16, 16), "red")],
            ),
            "several frames",
        ),
    ],
    ids=range(8),
)
def test_what_is_refused_says_why(data, words):
    with pytest.raises(BadSample, match=words):
        decode(data)


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "PNG", "WEBP"])
def test_frames_are_not_counted(monkeypatch, kind):
    """Some megabytes of empty frames took minutes: Pillow goes through all of them, in a TIFF by
    the square."""
    many = saved(
        Image.new("RGB", (16, 16)),
        kind,
        save_all=True,
        append_images=[Image.new("RGB", (16, 16), "red")] * 3,
    )
    for plugin in (TiffImagePlugin.TiffImageFile, GifImagePlugin.GifImageFile):
        monkeypatch.setattr(
            plugin, "n_frames", property(lambda self: pytest.fail("all frames are gone through"))
        )
    with pytest.raises(BadSample, match="several frames"):
        decode(many)
    assert decode(saved(Image.new("RGB", (16, 16)), kind)).image.size == (16, 16)


@pytest.mark.parametrize("encoding", ["PNG", "JPEG", "WEBP"])
def test_a_cut_file_is_refused(make, encoding):
    data = make.picture(3, (64, 64), encoding)
    with pytest.raises(BadSample, match="damaged|cut off|not a picture"):
        decode(data[: len(data) * 2 // 3])


def test_sixteen_bit_colour_is_refused():
    """Pillow reads it as 8 bits without a word."""
    head = struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(16 * 6)) * 16)
    parts = [(b"IHDR", head), (b"IDAT", rows), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    ]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    for deep in (data, b"P6 16 16 65535\n" + bytes(16 * 16 * 6)):
        with pytest.raises(BadSample, match="8 bits"):
            decode(deep)


def test_transparency_and_turning_are_told():
    clear = Image.new("RGBA", (10, 10), (255, 0, 0, 0))
    opened = decode(saved(clear))
    assert opened.changes == {"alpha over white"} and opened.image.getpixel((5, 5)) == (
        255,
        255,
        255,
    )
    assert decode(saved(Image.new("RGBA", (10, 10), (9, 8, 7, 255)))).changes == frozenset()
    tall = Image.new("RGB", (20, 10))
    exif = tall.getexif()
    exif[0x0112] = 6
    opened = decode(saved(tall, "JPEG", exif=exif))
    assert opened.image.size == (10, 20) and opened.changes == {"turned as its EXIF says"}


def test_the_centre_is_kept_and_resizing_is_antialiased():
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 255  # a white square in the middle, black to both sides
    fitted = fit(Image.fromarray(wide), (16, 16))
    assert fitted.changes == {"cropped", "resized"} and np.asarray(fitted.image).min() > 250
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    small = np.asarray(fit(Image.fromarray(stripes), (16, 16)).image)
    assert abs(small.astype(int) - 127).max() < 12, (
        "every second column must average to grey, not alias"
    )
    same = fit(Image.new("RGB", (16, 16)), (16, 16))
    assert not same.changes
    assert fit(Image.new("RGB", (12, 12)), (16, 16)).changes == {"enlarged"}


def test_buckets_have_one_area_and_the_nearest_ratio_wins():
    shapes = buckets(64)
    assert (64, 64) in shapes and all(0.5 <= w / h <= 2 and w % 8 == h % 8 == 0 for w, h in shapes)
    assert all(0.75 * 64 * 64 <= w * h <= 64 * 64 for w, h in shapes)
    assert {(h, w) for w, h in shapes} == set(shapes)
    assert shapes[nearest((1000, 1000), shapes)] == (64, 64)
    w, h = shapes[nearest((3000, 1500), shapes)]
    assert w / h > 1.5


@pytest.mark.parametrize("encoding, exact", [("png", True), ("raw", True), ("jpeg", False)])
def test_what_is_stored_comes_back(make, encoding, exact):
    image = decode(make.picture(1, (16, 16))).image
    decoded = pixels(encode(image, encoding, 95), (16, 16))
    wanted = np.asarray(image).transpose(2, 0, 1)
    assert decoded.shape == (3, 16, 16) and (
        np.array_equal(decoded, wanted)
        if exact
        else np.abs(decoded.astype(int) - wanted).mean() < 8
    )
