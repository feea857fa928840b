"""Pictures on disk: folders, shards, arrays; what is refused, what is counted, what a kill costs."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fulcrum.measure import offline
from fulcrum.measure.card import compatible
from fulcrum.measure.decode import BadPicture, decode, read_colour
from fulcrum.measure.distances import DISTANCES, KID, Frechet
from fulcrum.measure.extractor import Extractor, load_extractor
from fulcrum.measure.offline import Pass, Policy, compare
from fulcrum.measure.pictures import PictureSet
from fulcrum.measure.store import FeatureStore
from fulcrum.spec.errors import BadInput

N = 80


def pictures(seed: int, n: int = N, side: int = 16) -> np.ndarray:
    """(n, side, side, 3): a colour with a ramp and some grain."""
    rng = np.random.default_rng(seed)
    colour, ramp = rng.random((n, 1, 1, 3)) * 180, rng.random((n, 1, 1, 3)) * 70
    return (colour + ramp * np.linspace(0, 1, side)[:, None] + rng.random((n, side, side, 3)) * 5).astype(np.uint8)


def encoded(image: np.ndarray, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return stream.getvalue()


def folder(path: Path, images: np.ndarray) -> Path:
    path.mkdir(parents=True)
    for number, image in enumerate(images):
        (path / f"{number:04d}.png").write_bytes(encoded(image))
    return path


def shard(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


class Counting:
    """Six colour statistics, and a memory of how many pictures it was shown."""

    def __init__(self) -> None:
        self.calls = 0

    def extractor(self, name: str = "colours") -> Extractor:
        return Extractor(name, "colours-1" * 5, "none", "uint8", 6, self.features)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.cat([images.float().mean((2, 3)), images.float().std((2, 3))], dim=1)


def look(path: Path, cache: Path, reference: bool = False, part: Extractor | None = None, **policy):
    part = part or Counting().extractor()
    return Pass([part], DISTANCES, cache, reference, Policy(**policy)).look(PictureSet(path))


def test_folder_shards_and_npz_give_the_same_numbers(tmp_path: Path) -> None:
    a, b = pictures(1), pictures(2)
    reference = folder(tmp_path / "b", b)
    np.savez_compressed(tmp_path / "a.npz", a)
    np.save(tmp_path / "a.npy", a.transpose(0, 3, 1, 2))
    files = {f"{k:04d}.png": encoded(image) for k, image in enumerate(a)}
    (tmp_path / "shards").mkdir()
    names = sorted(files)
    shard(tmp_path / "shards" / "0.tar", {name: files[name] for name in names[:50]})
    shard(tmp_path / "shards" / "1.tar", {name: files[name] for name in names[50:]})
    part = Counting().extractor()
    around = look(reference, tmp_path / "cache", True)
    found = [compare(look(path, tmp_path / "cache"), around, [part], DISTANCES)
             for path in (folder(tmp_path / "a", a), tmp_path / "shards", tmp_path / "a.npz", tmp_path / "a.npy")]
    assert set(found[0]) == {f"colours.{metric.name}" for metric in DISTANCES}
    for other in found[1:]:
        assert {name: one.value for name, one in other.items()} == {name: one.value for name, one in found[0].items()}
    card = found[0]["colours.frechet"].card
    assert card.n == N and card.reference == around.hash and card.resize == "none" and card.extractor == "colours-1" * 5
    compatible(card, found[1]["colours.frechet"].card)


def test_a_stopped_measurement_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill loses a chunk at most; started again, nothing that was finished is looked at twice."""
    monkeypatch.setattr(offline, "CHUNK", 32)
    path, first = folder(tmp_path / "a", pictures(1)), Counting()

    def dies(images):
        if first.calls == 2:
            raise KeyboardInterrupt
        return first.features(images)

    part = first.extractor()._replace(features=dies)
    with pytest.raises(KeyboardInterrupt):
        look(path, tmp_path / "cache", part=part)
    second = Counting()
    resumed = look(path, tmp_path / "cache", part=second.extractor())
    assert second.calls == 1 and resumed.n == N  # 64 of 80 were safe
    third = Counting()
    again = look(path, tmp_path / "cache", part=third.extractor())
    assert third.calls == 0 and again.about() == resumed.about()
    fresh = look(path, tmp_path / "other")
    for kind, gathering in fresh.gathered["colours"].items():
        rows = getattr(gathering, "rows", None)
        if rows is not None:
            assert torch.equal(rows, resumed.gathered["colours"][kind].rows)
    (tmp_path / "a" / "0003.png").write_bytes(encoded(pictures(9)[0]))  # other content under an old name
    look(path, tmp_path / "cache", part=third.extractor())
    assert third.calls == 1


def test_two_processes_give_the_same_features(tmp_path: Path) -> None:
    """Each process looks at one half, with another batch; together they know what one process knows, bit for bit."""
    images = pictures(1)
    halves = [folder(tmp_path / f"half{k}", images[k::2]) for k in range(2)]
    whole = folder(tmp_path / "whole", images)
    code = """if True:
        import sys
        from pathlib import Path
        from fulcrum.measure import offline
        from fulcrum.measure.distances import Frechet
        from fulcrum.measure.extractor import load_extractor
        from fulcrum.measure.pictures import PictureSet
        offline.CHUNK = int(sys.argv[3])
        look = offline.Pass([load_extractor('embedded')], [Frechet()], Path(sys.argv[2]), False)
        look.look(PictureSet(Path(sys.argv[1])))
    """
    running = [subprocess.Popen([sys.executable, "-c", code, str(path), str(tmp_path / "two"), str(chunk)],
                                env={**os.environ, "OMP_NUM_THREADS": "1"})
               for path, chunk in zip(halves, (7, 40), strict=True)]
    part = load_extractor("embedded")
    alone = Pass([part], [Frechet()], tmp_path / "one", False).look(PictureSet(whole))
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    together = Pass([part._replace(features=None)], [Frechet()], tmp_path / "two", False).look(PictureSet(whole))
    (one,), (two,) = alone.gathered["embedded"].values(), together.gathered["embedded"].values()
    assert torch.equal(one.rows, two.rows)


def test_a_damaged_cache_is_made_again(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", pictures(1))
    look(path, tmp_path / "cache")
    kept = next((tmp_path / "cache").glob("*/*.safetensors"))
    data = bytearray(kept.read_bytes())
    data[-5] ^= 1
    kept.write_bytes(data)
    counting = Counting()
    assert look(path, tmp_path / "cache", part=counting.extractor()).n == N and counting.calls == 3
    assert FeatureStore(tmp_path / "cache", "colours-1" * 5, 6).damaged == []


BAD = {
    "cut off": (lambda image: encoded(image)[:200], "damaged or cut off"),
    "no picture": (lambda image: b"hello, this is text", "not a picture that can be read"),
    "empty": (lambda image: b"", "not a picture that can be read"),
    "transparent": (lambda image: encoded(np.dstack([image, np.full(image.shape[:2], 90, np.uint8)])), "transparent"),
    "16 bit": (lambda image: encoded(image[:, :, 0].astype(np.uint16) * 200), "more than 8 bits"),
    "other size": (lambda image: encoded(image[:10]), "16 x 10 pixels, and those before it 16 x 16"),
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
    (path / "0003.png").write_bytes(encoded(np.dstack([images[3], np.full((16, 16), 255, np.uint8)])))
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
    Image.fromarray(image).save(frames, "GIF", save_all=True, append_images=[Image.fromarray(255 - image)])
    with pytest.raises(BadPicture, match="2 frames"):
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
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

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
    """Members are read in memory: names that climb are only names; links and devices are ignored and counted."""
    images = pictures(1)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for number, image in enumerate(images):
            info, data = tarfile.TarInfo(f"../../escaped{number}.png"), encoded(image)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for kind, name in ((tarfile.SYMTYPE, "link.png"), (tarfile.LNKTYPE, "hard.png"), (tarfile.FIFOTYPE, "pipe.png")):
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


def test_arrays_that_are_refused(tmp_path: Path) -> None:
    def says(array, message: str, **more) -> None:
        np.savez(tmp_path / "x.npz", **({"images": array} if not isinstance(array, dict) else array))
        with pytest.raises(BadInput, match=message):
            Pass([Counting().extractor()], DISTANCES, tmp_path / "cache", False).look(
                PictureSet(tmp_path / "x.npz", **more))

    says(np.array([{"a": 1}] * 3, dtype=object), "could run code")
    says(pictures(1)[:, :, :, 0], "shape")
    says(pictures(1).astype(np.float32), "declared range")
    says(pictures(1).astype(np.float32) * 2, "declared to lie in", value_range=(0.0, 1.0))
    says(pictures(1).astype(np.int32), "uint8 or floating point")
    says({"mu": np.zeros(3), "sigma": np.zeros((3, 3))}, "an array called images")
    floats = pictures(1).astype(np.float64) / 127.5 - 1
    np.savez(tmp_path / "f.npz", images=floats)
    np.savez(tmp_path / "u.npz", images=pictures(1))
    found = [Pass([Counting().extractor()], [KID()], tmp_path / "cache", False).look(PictureSet(path, span)).gathered
             for path, span in ((tmp_path / "f.npz", (-1.0, 1.0)), (tmp_path / "u.npz", None))]
    (one,), (two,) = (part["colours"].values() for part in found)
    assert torch.equal(one.rows, two.rows)
    (tmp_path / "x.npz").write_bytes(b"PK nonsense")
    with pytest.raises(BadInput, match="cannot be read as an array"):
        look(tmp_path / "x.npz", tmp_path / "cache")


def test_places_without_enough_pictures(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, message in ((tmp_path / "empty", "holds no pictures"), (tmp_path / "nowhere", "nothing at")):
        with pytest.raises(BadInput, match=message):
            PictureSet(path)
    (tmp_path / "x.doc").write_text("")
    with pytest.raises(BadInput, match="neither a folder"):
        PictureSet(tmp_path / "x.doc")
    one, many = folder(tmp_path / "one", pictures(1, 1)), folder(tmp_path / "many", pictures(2))
    around = look(many, tmp_path / "cache", True)
    with pytest.raises(BadInput, match="holds 1 pictures, and frechet needs at least 64"):
        compare(look(one, tmp_path / "cache"), around, [Counting().extractor()], DISTANCES)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.png").write_bytes(b"x")
    with pytest.raises(BadInput, match="no usable picture: 1 were skipped"):
        look(tmp_path / "bad", tmp_path / "cache", skip_bad=True)


def test_nan_features_name_the_picture(tmp_path: Path) -> None:
    images = pictures(1)
    images[33] = 7
    path = folder(tmp_path / "a", images)

    def features(batch: torch.Tensor) -> torch.Tensor:
        rows = batch.float().mean((2, 3)).repeat(1, 2)
        rows[(batch == 7).flatten(1).all(1)] = torch.nan
        return rows

    part = Counting().extractor()._replace(features=features)
    with pytest.raises(BadInput, match="0033.png: the extractor 'colours' failed on it"):
        look(path, tmp_path / "cache", part=part)
    seen = look(path, tmp_path / "cache", part=part, skip_bad=True)
    assert seen.n == N - 1 and seen.skipped[0][0].endswith("0033.png")


def test_any_size(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", pictures(1))
    folder(path / "more", pictures(2, 20, 24))
    seen = look(path, tmp_path / "cache", any_size=True)
    assert seen.n == N + 20 and seen.sizes == {(16, 16): N, (24, 24): 20}


def test_clip_score_of_captioned_pictures(tmp_path: Path) -> None:
    """Captions lie beside the pictures, in folders and in shards; without all of them there is no score."""
    def score(images, captions):
        return torch.tensor([float(len(caption)) for caption in captions])

    part = Counting().extractor("clip")._replace(score=score)
    images = pictures(1)
    path = folder(tmp_path / "a", images)
    for number in range(N):
        (path / f"{number:04d}.txt").write_text("x" * (10 + number % 3))
    files = {}
    for number, image in enumerate(images):
        words, picture = (f"{number:04d}.txt", b"x" * (10 + number % 3)), (f"{number:04d}.png", encoded(image))
        files |= dict([words, picture] if number % 2 else [picture, words])
    reference = look(folder(tmp_path / "b", pictures(2)), tmp_path / "cache", True, part)
    for place in (path, shard(tmp_path / "a.tar", files)):
        found = compare(look(place, tmp_path / "cache", part=part), reference, [part], DISTANCES)["clip.clip_score"]
        assert found.value == pytest.approx(np.mean([10 + number % 3 for number in range(N)]))
        assert found.low < found.value < found.high and found.card.prompts and found.card.reference is None
    (path / "0007.txt").unlink()
    assert "clip.clip_score" not in compare(look(path, tmp_path / "cache", part=part), reference, [part], DISTANCES)


def test_symbolic_links(tmp_path: Path) -> None:
    """A link to a folder is not entered, a link to a picture of the set is no second picture, one to elsewhere is read."""
    path, other = folder(tmp_path / "a", pictures(1)), folder(tmp_path / "b", pictures(2, 1))
    os.symlink(path, path / "again")
    os.symlink(path / "0001.png", path / "alias.png")
    os.symlink(other / "0000.png", path / "zzz.png")
    seen = look(path, tmp_path / "cache")
    assert seen.n == N + 1 and seen.ignored == {"linked folders": 1, "links within the folder": 1}
    json.dumps(seen.about())
