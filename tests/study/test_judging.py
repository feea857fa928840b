"""Judges that a plan names: their numbers with cards, on stand-in networks; the same names in plan,
worker and page."""

import json

import numpy as np
import pytest
import torch

from examples.emoji import reader
from examples.emoji.reader import EmojiReader
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.importing import Options
from fulcrum.judge.card import JUDGED, METRICS, Sampling
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure import evaluation as judging
from fulcrum.measure.evaluation import Bench, Sources, measures, require_known
from fulcrum.measure.features.extractor import Extractor
from fulcrum.spec.errors import BadInput
from fulcrum.studies import proof as requirements
from fulcrum.studies.cell import Measuring, lay_out
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_plain
from tests.fake_emoji import Renderer, write_packages

WIDTH = 24


class Near(torch.nn.Module):
    def lpips(self, one, other):
        return (one - other).abs().mean((1, 2, 3))


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A small imported set, and stand-ins for the three networks."""
    monkeypatch.setattr(reader, "_renderer", Renderer)
    packages = write_packages(tmp_path / "packages", ("noto", "twemoji", "fluent", "openmoji"))
    run_import(EmojiReader(packages, 16), tmp_path / "to", Options(size=16), lambda text: None)

    def features(images):
        small = torch.nn.functional.avg_pool2d(images.float() / 255, 16 // 4)
        return torch.cat([small.flatten(1), small.mean((2, 3))], 1)[:, :WIDTH]

    monkeypatch.setattr(
        judging,
        "load_extractor",
        lambda name: Extractor(
            name, f"hash of {name}", "none", "uint8", WIDTH, features, network=Near()
        ),
    )
    monkeypatch.setattr(
        Bench,
        "_vectors",
        lambda self, names: {
            name: torch.randn(8, generator=torch.Generator().manual_seed(len(name)))
            for name in names
        },
    )
    return Sources(
        *(FolderSource(tmp_path / "to", split) for split in ("reference", "train", "validation"))
    )


def test_real_pictures_are_near_themselves_and_noise_is_not(sources, tmp_path):
    n = 64
    index = np.arange(n)
    real = torch.from_numpy(sources.reference.read(index % len(sources.reference)).images)
    noise = torch.randint(
        0, 256, real.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    measured = {}
    for what, images in (("real", real), ("noise", noise)):
        bench = Bench(("lite0", "vgg"), sources, tmp_path / "cache")
        bench.look(images[:40], index[:40])
        bench.look(images[40:], index[40:])
        measured[what] = bench.compute(Sampling(steps=3), n)
        with pytest.raises(ValueError, match="expected 65"):
            bench.compute(Sampling(), 65)
    assert set(measured["real"]) == {*JUDGED["lite0"], *JUDGED["vgg"]}
    assert measured["real"]["vgg.lpips"].value == 0 < measured["noise"]["vgg.lpips"].value
    for name in ("lite0.kid", "lite0.mmd", "vgg.kid"):
        assert measured["real"][name].high < measured["noise"][name].low
    card = measured["real"]["lite0.name_rank"].card
    assert (
        "held-out ones (real pictures: rank" in card.estimator
        and card.steps == 3
        and card.better == "higher"
    )
    assert 0 <= measured["noise"]["lite0.name_recall"].value <= 1


def test_a_bench_keeps_the_features_of_real_pictures(sources, tmp_path, monkeypatch):
    first, second = (Bench(("lite0",), sources, tmp_path / "cache") for _ in range(2))
    rows = first.references.rows(sources.reference, first.extractors["lite0"])
    monkeypatch.setattr(Extractor, "rows", None)
    assert torch.equal(second.references.rows(sources.reference, second.extractors["lite0"]), rows)


def test_names_are_asked_only_of_pictures_that_have_them(sources):
    assert measures(sources.reference, "lite0.name_rank") and measures(object(), "vgg.lpips")
    assert not measures(object(), "lite0.name_recall")


def test_a_plan_names_its_judges():
    base = {"title": "t", "baseline": "spark", "arms": ["muon"], "seeds": [0, 1]}
    plain, judged = (
        from_plain(base),
        from_plain({**base, "judges": ["lite0"], "primary": "lite0.kid"}),
    )
    assert (
        plain.hash
        == Plan(title="t", baseline="spark", arms=("muon",), seeds=(0, 1)).hash
        != judged.hash
    )
    assert (
        Measuring(64).how
        != Measuring(64, judges=("lite0",)).how
        != Measuring(64, judges=("vgg",)).how
    )
    for wrong, says in (
        ({"judges": ["clip"]}, "no judge"),
        ({"primary": "lite0.kid"}, "needs its judge"),
    ):
        with pytest.raises(ValueError, match=says):
            from_plain({**base, **wrong})
    assert all(name in METRICS for names in JUDGED.values() for name in names)
    assert json.loads(json.dumps(Measuring(64, judges=("lite0",))._asdict()))["judges"] == ["lite0"]


def test_a_judge_that_is_missing_is_found_before_training(monkeypatch):
    with pytest.raises(BadInput, match="no judge"):
        require_known(("inception",))
    monkeypatch.setattr(
        "fulcrum.networks.pretrained.folder.importlib.util.find_spec", lambda name: None
    )
    with pytest.raises(BadInput, match="not installed"):
        require_known(("vgg",))
    require_known(())


def test_a_judge_whose_network_an_arm_learns_from_is_refused_before_training(monkeypatch, tmp_path):
    """LPIPS through VGG would win by construction on what VGG judges."""
    monkeypatch.setattr(
        "fulcrum.networks.pretrained.folder.installed", lambda name: tmp_path / name
    )
    monkeypatch.setattr(requirements, "require_known", lambda judges: None)
    base = {
        "title": "t",
        "baseline": "spark + pixels + x_prediction",
        "arms": ["lpips(network=vgg)"],
        "seeds": [0, 1],
    }
    plan = from_plain({**base, "judges": ["vgg"]})
    with pytest.raises(
        BadInput,
        match=r"the arm 'lpips\(network=vgg\)' learns from the network that the judge 'vgg'",
    ):
        requirements.require_runnable(
            plan, lay_out(plan, CATALOG, {}, tmp_path), tmp_path / "study"
        )
