"""One pass over pictures on disk: the same numbers from any container, after any stop, by any
number of processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fulcrum.cli import main
from fulcrum.judge.card import compatible
from fulcrum.measure import folders as offline
from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.features.extractor import load_extractor
from fulcrum.measure.features.kept import FeatureStore, PictureFacts
from fulcrum.measure.folders import Pass, compare
from fulcrum.measure.metrics.distances import DISTANCES, Frechet
from fulcrum.measure.pictures import PictureSet
from fulcrum.spec.errors import BadInput
from tests.measure.drawn import Counting, N, encoded, folder, look, pictures, shard

pytestmark = pytest.mark.long


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
    found = [
        compare(look(path, tmp_path / "cache"), around, [Comparison(part, DISTANCES)])
        for path in (
            folder(tmp_path / "a", a),
            tmp_path / "shards",
            tmp_path / "a.npz",
            tmp_path / "a.npy",
        )
    ]
    assert set(found[0]) == {f"colours.{metric.name}" for metric in DISTANCES}
    for other in found[1:]:
        assert {name: one.value for name, one in other.items()} == {
            name: one.value for name, one in found[0].items()
        }
    card = found[0]["colours.frechet"].card
    assert (
        card.n == N
        and card.reference == around.hash
        and card.resize == "none"
        and card.extractor == "colours-1" * 5
    )
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
    for kind, gathering in fresh.features.gathered["colours"].items():
        rows = getattr(gathering, "rows", None)
        if rows is not None:
            assert torch.equal(rows, resumed.features.gathered["colours"][kind].rows)
    # other content under an old name
    (tmp_path / "a" / "0003.png").write_bytes(encoded(pictures(9)[0]))
    look(path, tmp_path / "cache", part=third.extractor())
    assert third.calls == 1


def test_two_processes_give_the_same_features(tmp_path: Path) -> None:
    """Each process looks at one half, with another batch; together they know what one process
    knows, bit for bit."""
    images = pictures(1)
    halves = [folder(tmp_path / f"half{k}", images[k::2]) for k in range(2)]
    whole = folder(tmp_path / "whole", images)
    code = """if True:
        import sys
        from pathlib import Path
        from fulcrum.measure import folders as offline
        from fulcrum.measure.evaluate import Comparison
        from fulcrum.measure.metrics.distances import Frechet
        from fulcrum.measure.features.extractor import load_extractor
        from fulcrum.measure.pictures import PictureSet
        offline.CHUNK = int(sys.argv[3])
        comparisons = [Comparison(load_extractor('embedded'), [Frechet()])]
        look = offline.Pass(comparisons, Path(sys.argv[2]), False)
        look.look(PictureSet(Path(sys.argv[1])))
    """
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(tmp_path / "two"), str(chunk)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for path, chunk in zip(halves, (7, 40), strict=True)
    ]
    part = load_extractor("embedded")
    alone = Pass([Comparison(part, [Frechet()])], tmp_path / "one", False).look(PictureSet(whole))
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    together = Pass(
        [Comparison(part._replace(features=None), [Frechet()])], tmp_path / "two", False
    ).look(PictureSet(whole))
    (one,), (two,) = (
        alone.features.gathered["embedded"].values(),
        together.features.gathered["embedded"].values(),
    )
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "folder", "bfloat16"])
def test_no_file_of_features_in_a_cache_is_damaged(tmp_path: Path, kind: str) -> None:
    store = FeatureStore(tmp_path, "colours-1" * 5, 6)
    store.put([bytes(32)], torch.zeros(1, 6), [PictureFacts(8, 8)])
    kept = next(store.folder.glob("*.safetensors"))
    kept.unlink()
    if kind == "pipe":
        os.mkfifo(kept)
    elif kind == "folder":
        kept.mkdir()
        (kept / "notes.txt").write_text("mine")
    else:
        save_file(
            {
                name: torch.zeros(1, 32, dtype=torch.bfloat16)
                for name in ("features", "keys", "facts")
            },
            kept,
        )
    assert FeatureStore(tmp_path, "colours-1" * 5, 6).damaged == [kept] and not kept.exists()
    assert FeatureStore(tmp_path, "colours-1" * 5, 6).damaged == []
    assert (
        kind != "folder"
        or (kept.parent / f"damaged-{kept.name}" / "notes.txt").read_text() == "mine"
    )


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
    """Captions lie beside the pictures, in folders and in shards; without all of them there is no
    score."""

    def score(images, captions):
        return torch.tensor([float(len(caption)) for caption in captions])

    part = Counting().extractor("clip")._replace(score=score)
    images = pictures(1)
    path = folder(tmp_path / "a", images)
    for number in range(N):
        (path / f"{number:04d}.txt").write_text("x" * (10 + number % 3))
    files = {}
    for number, image in enumerate(images):
        words, picture = (
            (f"{number:04d}.txt", b"x" * (10 + number % 3)),
            (f"{number:04d}.png", encoded(image)),
        )
        files |= dict([words, picture] if number % 2 else [picture, words])
    reference = look(folder(tmp_path / "b", pictures(2)), tmp_path / "cache", True, part)
    for place in (path, shard(tmp_path / "a.tar", files)):
        found = compare(
            look(place, tmp_path / "cache", part=part), reference, [Comparison(part, DISTANCES)]
        )["clip.clip_score"]
        assert found.value == pytest.approx(np.mean([10 + number % 3 for number in range(N)]))
        assert (
            found.low < found.value < found.high
            and found.card.prompts
            and found.card.reference is None
        )
    (path / "0007.txt").unlink()
    assert "clip.clip_score" not in compare(
        look(path, tmp_path / "cache", part=part), reference, [Comparison(part, DISTANCES)]
    )


SLOW = """
import time
from fulcrum.measure.user_metrics import OwnExtractor

class Slow(OwnExtractor):
    name, width, resize = "slow", 6, "none"

    def features(self, images):
        time.sleep(%s)
        import torch
        return torch.cat([images.float().mean((2, 3)), images.float().std((2, 3))], 1)
"""


def test_killed_and_started_again_gives_the_same_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kill -9 in the middle of the pictures: what was looked at is kept, and the end is that of an
    unbroken measurement."""
    sets = [folder(tmp_path / name, pictures(seed, 600)) for seed, name in ((1, "a"), (2, "b"))]
    own = tmp_path / "slow.py"
    own.write_text(SLOW % 0.03)

    def words(out: str) -> list[str]:
        return [
            "measure",
            *map(str, sets),
            "--metrics",
            str(own),
            "--out",
            str(tmp_path / out),
            "--json",
            "--threads",
            "1",
        ]

    def unbroken(out: str) -> dict:
        with pytest.raises(SystemExit) as end:
            main(words(out))
        assert end.value.code == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    killed = subprocess.Popen(
        [sys.executable, "-m", "fulcrum", *words("killed")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    kept = tmp_path / "killed" / "cache" / "features"
    deadline = time.monotonic() + 120
    while not list(kept.glob("*/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.communicate()[0] == b"" and killed.returncode == -signal.SIGKILL
    # 600 pictures are three chunks, and there are two sets
    assert 0 < len(list(kept.glob("*/*.safetensors"))) < 6
    resumed, fresh = unbroken("killed"), unbroken("fresh")
    assert resumed == fresh and resumed["pictures"]["n"] == 600
