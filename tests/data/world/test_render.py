"""Pictures: the same bytes however they are made, and objects that look like their words."""

import hashlib
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import DISTANCE, DOMAINS, REACH, _blur, _grain, render, scenes

GOLDEN = {"synthetic": "04321127041a1adb", "real": "071bb65046b1cc04"}


@pytest.mark.parametrize("domain", DOMAINS)
def test_golden_bytes(domain):
    """The world is a reference: if this fails on purpose, raise WORLD_VERSION and rebuild what was
    trained on it."""
    digest = hashlib.sha256()
    for size in (32, 50):
        digest.update(render(scenes("train", np.arange(64)), size, domain).tobytes())
    assert digest.hexdigest()[:16] == GOLDEN[domain]


@pytest.mark.parametrize("domain", DOMAINS)
def test_chunks_threads_and_neighbours_do_not_change_a_byte(domain):
    s = scenes("train", np.arange(150))
    whole = render(s, 32, domain)
    assert whole.dtype == np.uint8 and whole.shape == (150, 3, 32, 32)
    assert np.array_equal(whole, render(s, 32, domain, threads=3))
    rows = np.array([149, 5, 71])
    assert np.array_equal(whole[rows], render(s.take(rows), 32, domain))
    assert np.array_equal(whole[5], render(s.take(np.array([5])), 32, domain)[0])


@pytest.mark.parametrize("domain, limit", [("synthetic", 3.0), ("real", 5.0)])
def test_the_same_scene_at_every_resolution(domain, limit):
    s = scenes("train", np.arange(64))
    small, large = render(s, 32, domain).astype(float), render(s, 128, domain).astype(float)
    shrunk = large.reshape(64, 3, 32, 4, 32, 4).mean(axis=(3, 5))
    assert np.abs(small - shrunk).mean() < limit
    # another scene is far away
    assert np.abs(small - np.roll(shrunk, 1, axis=0)).mean() > 5 * limit


def test_colours_are_well_separated():
    palette = np.array(v.COLOUR_RGB + v.BACKGROUND_RGB, float)
    coloured = range(len(v.COLOURS))
    pairs = [(a, b) for a, b in combinations(range(len(palette)), 2) if a in coloured]
    assert min(np.linalg.norm(palette[a] - palette[b]) for a, b in pairs) >= 75


def inside(s, size: int) -> np.ndarray:
    """(B, S, S) pixels near the middle of object 0 (on the band of a ring): half a radius around
    it."""
    grid = (np.arange(size) + 0.5) / size
    x, y, r = (a[:, 0, None, None] for a in (s.x, s.y, s.radius))
    away = np.hypot(grid[None, None, :] - x, grid[None, :, None] - y) / r
    ring = (s.shape[:, 0] == v.SHAPES.index("ring"))[:, None, None]
    return np.where(ring, np.abs(away - 0.79) < 0.12, away < 0.3)


@pytest.mark.parametrize(
    "domain, size, least", [("synthetic", 32, 1.0), ("real", 64, 0.99), ("real", 32, 0.99)]
)
def test_plain_objects_have_the_colour_they_are_called(domain, size, least):
    """Nearest palette colour by hue alone, which light changes little."""
    s = scenes("train", np.arange(1_500), 1)
    s = s.take((s.texture[:, 0] == 0) & (s.size[:, 0] > 0))
    images, mask = render(s, size, domain).astype(float), inside(s, size)[:, None]
    mean = (images * mask).sum((2, 3)) / mask.sum((2, 3))
    direction = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    palette = np.array(v.COLOUR_RGB, float)
    palette /= np.linalg.norm(palette, axis=1, keepdims=True)
    assert ((direction @ palette.T).argmax(1) == s.colour[:, 0]).mean() >= least


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    "name, words", [("shape", v.SHAPES), ("colour", v.COLOURS), ("texture", v.TEXTURES)]
)
def test_every_word_of_an_attribute_looks_different(domain, name, words):
    """Even a small object at 32 px: any two words differ in a patch by more than grain could
    explain."""
    one = scenes("train", np.arange(300), 1)
    one = one.take(
        np.flatnonzero((one.size[:, 0] == 0) & (one.place[:, 0] == 4) & (one.background == 0))[:1]
    )
    assert len(one) == 1
    drawn = [
        render(replace(one, **{name: np.where(one.place >= 0, n, -1)}), 32, domain).astype(float)[0]
        for n in range(len(words))
    ]
    for a, b in combinations(range(len(words)), 2):
        assert np.abs(drawn[a] - drawn[b]).max() > 40, (words[a], words[b])


def test_sizes_differ_in_painted_area():
    one = scenes("train", np.arange(12_000), 1)
    one = one.take((one.background == 0) & (one.texture[:, 0] == 0) & (one.shape[:, 0] == 0))
    drawn = render(one, 32).astype(float)
    area = (np.abs(drawn - drawn[:, :, :1, :1]).max(1) > 30).sum((1, 2))
    groups = [area[one.size[:, 0] == n] for n in range(3)]
    assert all(len(g) > 3 for g in groups)
    assert groups[0].max() < groups[1].min() and groups[1].max() < groups[2].min()


@pytest.mark.parametrize("kind", range(len(v.SHAPES)), ids=v.SHAPES)
def test_a_signed_distance_is_one(kind):
    """Steepness at most one (antialiasing is never narrower than it says) and nothing beyond the
    reach."""
    line = np.linspace(-2, 2, 401, dtype=np.float32)
    u, w = np.meshgrid(line, line)
    d = DISTANCE[kind](u, w)
    assert d.dtype == np.float32
    # differences are one-sided at the border
    steep = np.hypot(*np.gradient(d.astype(float), 0.01))[1:-1, 1:-1]
    assert steep.max() < 1.02
    assert (d <= 0).any() and np.hypot(u, w)[d <= 0].max() < REACH


def test_the_real_domain_is_keyed_by_the_scene_and_keeps_the_objects():
    s = scenes("train", np.arange(100))
    clean, real = render(s, 32).astype(float), render(s, 32, "real").astype(float)
    again = render(replace(s, key=s.key + np.uint64(1)), 32, "real").astype(float)
    assert np.abs(clean - real).mean() > 5 and np.abs(again - real).mean() > 3
    correlation = [
        np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(clean, real, strict=True)
    ]
    assert np.median(correlation) > 0.8


def test_blur_adds_the_variance_it_is_given():
    for side, variance in ((32, 0.15), (128, 2.5)):
        canvas = np.zeros((1, 3, side, side), np.float32)
        canvas[..., side // 2, side // 2] = 1
        _blur(canvas, np.array([variance], np.float32))
        offset = np.arange(side) - side // 2
        assert canvas[0, 0].sum() == pytest.approx(1, abs=1e-5)
        assert (canvas[0, 0].sum(0) * offset**2).sum() == pytest.approx(variance, rel=1e-3)


def test_grain_is_white():
    grain = _grain(np.array([1 << 40, 7 << 50], np.uint64), 64)
    assert abs(grain.mean()) < 0.02 and grain.var() == pytest.approx(1 / 6, rel=0.05)
    assert (
        abs((grain[:, 1:] * grain[:, :-1]).mean()) < 0.01
        and abs((grain[0] * grain[1]).mean()) < 0.01
    )


def test_bad_input():
    s = scenes("train", np.arange(2))
    with pytest.raises(ValueError, match="synthetic, real"):
        render(s, 32, "photo")
    with pytest.raises(ValueError, match="at least 8"):
        render(s, 4)
    assert render(scenes("train", np.arange(0)), 32, "real").shape == (0, 3, 32, 32)
