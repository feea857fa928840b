"""Perceptual terms: nothing for the true picture, a gradient for the prediction, none for the network, nothing saved."""

import pytest
import torch

from fulcrum.encode.networks.world_teacher import load_teacher
from fulcrum.loss.fillers import LPIPS, PerceptualFeatures
from fulcrum.loss.perceptual import FeatureTerm, StageTerm, unit
from fulcrum.loss.term import View
from fulcrum.model.counted_flops import counted
from fulcrum.spec.errors import BadInput

TERMS = {"perceptual_features": (FeatureTerm, PerceptualFeatures), "lpips": (StageTerm, LPIPS)}
PIXELS = ("encode.codec=pixels", "model.patch=8", "flow.predict=x")


class Batch:
    def __init__(self, x0):
        self.x0 = x0


def view(x0, x):
    return View(Batch(x0), None, None, None, x, {})


@pytest.fixture(params=TERMS)
def name(request):
    return request.param


@pytest.fixture
def term(name):
    return TERMS[name][0](load_teacher(), "cpu")


@pytest.fixture
def x0():
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_zero_for_the_true_picture_and_more_the_further_away(term, x0):
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(1))
    near, far = (term(view(x0, x0 + scale * noise)) for scale in (0.05, 0.5))
    assert term(view(x0, x0)).abs().max() < 1e-6
    assert near.shape == (3,) and (near > 1e-5).all() and (far > near).all()


def test_the_prediction_gets_a_gradient_and_the_network_none(term, x0):
    x = (x0 + 0.1).requires_grad_()
    term(view(x0, x)).sum().backward()
    assert x.grad.isfinite().all() and x.grad.abs().amax((1, 2, 3)).min() > 0
    assert all(p.grad is None and not p.requires_grad for p in term.network.parameters())


def test_the_network_is_neither_saved_nor_trained(term):
    assert not term.state_dict() and not list(term.parameters()) and not list(term.children())


def test_flops_are_those_counted(name, term, tiny, saved):
    run = tiny(f"spark + {name}", *PIXELS)
    x0, x = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32, requires_grad=True)
    assert TERMS[name][1]().flops(run) == counted(lambda: term(view(x0, x)).sum().backward())
    found = saved(lambda: term(view(x0, x)), term.network.parameters())
    assert TERMS[name][1]().numbers(run) == pytest.approx(found, rel=0.03)


def test_stages_are_early_and_late(x0):
    seen = load_teacher().stages(x0)
    assert [tuple(stage.shape[1:]) for stage in seen] == [(32, 16, 16), (96, 8, 8), (96, 8, 8)]
    assert torch.allclose(unit(seen[0]).square().sum(1), torch.ones(3, 16, 16), atol=1e-3)


def test_unit_of_nothing_has_a_finite_gradient():
    h = torch.zeros(1, 4, 2, 2, requires_grad=True)
    unit(h).sum().backward()
    assert h.grad.isfinite().all()


def test_stage_by_stage_by_hand(x0):
    """LPIPS, equation 1, with weights of one."""
    network, x = load_teacher(), x0.flip(3)
    expected = torch.zeros(3)
    for one, other in zip(network.stages(x), network.stages(x0), strict=True):
        difference = torch.nn.functional.normalize(one, dim=1) - torch.nn.functional.normalize(other, dim=1)
        expected += difference.square().sum((1, 2, 3)) / (one.shape[2] * one.shape[3])
    assert torch.allclose(StageTerm(network, "cpu")(view(x0, x)), expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "8 channels, stride 4"),
        (("encode.codec=pixels", "model.patch=8"), "predicts 'velocity'"),
        (("flow.predict=x",), "8 channels, stride 4"),
        (("encode.codec=pixels", "model.patch=5", "data.size=30", "flow.predict=x"), "multiples of 4 px, found 30"),
    ],
)
def test_refused_when_the_phrase_is_read(tiny, name, settings, said):
    with pytest.raises(BadInput, match=said):
        tiny(f"spark + {name}", *settings)


def test_the_network_never_judges():
    """Training on the test would win by construction: the terms' network is no metric's."""
    from fulcrum.files.shipped import asset_hash

    own = set(PerceptualFeatures().hashes().values()) | set(LPIPS().hashes().values())
    assert own == {asset_hash("teacher")} and not own & {asset_hash("judge"), asset_hash("features")}
