"""Judges and teacher: shapes, independence of batch, any size and range, and the accuracy on their
cards."""

import numpy as np
import pytest
import torch

from fulcrum.data.source import WorldSource
from fulcrum.files.shipped import asset_hash, card
from fulcrum.measure.reference import noise_pictures
from fulcrum.networks.codec import load_codec
from fulcrum.networks.judges import (
    AttributeJudge,
    PatchJudge,
    load_features,
    load_judge,
    load_second_judge,
)
from fulcrum.networks.network_hash import to_bytes, to_unit
from fulcrum.networks.teacher import load_teacher
from tools.assets.crowds import crowds
from tools.assets.fit_features import frechet, measure_features
from tools.assets.fit_judge import accuracy
from tools.assets.pictures import blurred, drawn_pictures, pictures
from tools.assets.teacher_probe import measure_teacher

Judge = AttributeJudge | PatchJudge
LOADED = {"judge": load_judge, "judge_second": load_second_judge}


@pytest.fixture(scope="module", params=list(LOADED))
def judge(request: pytest.FixtureRequest) -> Judge:
    return LOADED[request.param]()


def test_judge_shapes(judge: Judge) -> None:
    found = judge.judge(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert {name: tuple(v.shape) for name, v in found.items()} == {
        "present": (2, 9, 2),
        "shape": (2, 9, 7),
        "colour": (2, 9, 8),
        "texture": (2, 9, 4),
        "size": (2, 9, 3),
    }


@pytest.mark.parametrize("domain", [0, 1], ids=["synthetic", "real"])
def test_judge_keeps_the_promise_of_its_card(judge: Judge, domain: int) -> None:
    pool = pictures("validation", 300, start=3000)
    found = accuracy(judge, pool.images[domain], pool.grid)
    promised = card("judge" if isinstance(judge, AttributeJudge) else "judge_second")["quality"][
        ("synthetic", "real")[domain]
    ]
    assert all(found[name] > promised[name] - 0.05 for name in found)
    assert min(promised[name] for name in found) > 0.98


def test_judge_reads_pictures_that_went_through_the_codec(judge: Judge) -> None:
    """Otherwise a latent model could not reach what the metric calls perfect."""
    pool, codec = pictures("validation", 200, start=3000), load_codec()
    back = to_bytes(codec.decode(codec.encode(to_unit(pool.images[1]))))
    found = accuracy(judge, back, pool.grid)
    assert found["present"] > 0.99 and found["colour"] > 0.98
    assert min(found["shape"], found["texture"], found["size"]) > 0.9


def test_judge_takes_any_size_and_range(judge: Judge) -> None:
    index = np.arange(100)
    large = torch.from_numpy(WorldSource("validation", "real", 128, 100).read(index).images)
    grid = pictures("validation", 100).grid
    assert accuracy(judge, large, grid)["colour"] > 0.95
    as_bytes, as_floats = (
        judge.judge(large)["shape"],
        judge.judge(large.float() / 255, span=(0, 1))["shape"],
    )
    torch.testing.assert_close(as_bytes, as_floats, atol=1e-3, rtol=1e-3)


def test_the_second_judge_sees_nothing_in_noise_and_counts_to_nine() -> None:
    """What the first was never shown: it takes noise for objects."""
    noise = noise_pictures(np.arange(64), 32)
    second = load_second_judge()
    assert float(second.judge(noise)["present"].argmax(-1).float().mean()) < 0.01
    assert float(load_judge().judge(noise)["present"].argmax(-1).float().mean()) > 0.3
    crowd = drawn_pictures(crowds(300, start=900_000))
    counted = second.judge(crowd.images[1])["present"].argmax(-1)
    assert set(crowd.scenes.count.tolist()) == set(range(10))
    assert float((counted.sum(1) == crowd.grid["present"].sum(1)).float().mean()) > 0.9


def test_the_judges_learned_from_different_scenes_and_weights() -> None:
    first, second = card("judge"), card("judge_second")
    assert first["kind"] != second["kind"] and first["built"]["seed"] != second["built"]["seed"]
    assert (
        second["built"]["first_scene"] >= first["built"]["scenes"] and second["bytes"] < 2_000_000
    )
    scenes = {
        name: card(name)["built"]["split"]
        for name in ("judge", "judge_second", "features", "teacher")
    }
    assert set(scenes.values()) == {"assets"}  # none that a run trains on or is judged by


def test_features_see_damage_and_not_chance() -> None:
    features = load_features()
    first, second = (
        pictures("validation", 400, start=3000).images[1],
        pictures("validation", 400, start=5000).images[1],
    )
    soft = to_bytes(blurred(to_unit(second), 0.8))
    base = features.features(first)
    assert base.shape == (400, 64) and base.dtype == torch.float32
    assert frechet(base, features.features(soft)) > 2 * frechet(base, features.features(second))


def test_features_keep_the_promise_of_their_card() -> None:
    found, promised = measure_features(load_features(), 200), card("features")["quality"]
    for domain in ("synthetic", "real"):
        assert all(found[domain][name] > value - 0.06 for name, value in promised[domain].items())


def test_teacher_tokens() -> None:
    teacher = load_teacher()
    assert teacher.tokens(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 128)
    assert teacher.tokens(torch.zeros(1, 3, 64, 64)).shape == (1, 256, 128)
    with pytest.raises(ValueError, match="multiples of 4"):
        teacher.tokens(torch.zeros(1, 3, 30, 30))
    # a probe needs its scenes
    found, promised = measure_teacher(teacher, 600, start=3000), card("teacher")["quality"]
    assert all(found["real"][name] > promised["real"][name] - 0.08 for name in found["real"])


def test_nobody_judges_what_it_taught() -> None:
    assert len({asset_hash(name) for name in ("judge", "features", "teacher")}) == 3
    kinds = {card(name)["kind"] for name in ("judge", "features", "teacher")}
    assert kinds == {"AttributeJudge", "FeatureNet", "Teacher"}
