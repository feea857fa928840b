"""Perceptual terms: nothing for the true picture, a gradient for the prediction, none for the
network, nothing saved."""

from types import SimpleNamespace

import pytest
import torch

from fulcrum.levers.perceptual import UseLPIPS
from fulcrum.measure.evaluation import require_impartial
from fulcrum.networks.pretrained import folder as registry
from fulcrum.networks.pretrained.vision import VGG
from fulcrum.networks.teacher import load_teacher
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput
from fulcrum.training.loss.fillers import LPIPS, VGGLPIPS, PerceptualFeatures
from fulcrum.training.loss.perceptual import FeatureTerm, StageTerm, VGGTerm, unit
from fulcrum.training.loss.terms import View
from fulcrum.training.model.counted_flops import counted

TERMS = {
    "perceptual_features": (FeatureTerm, PerceptualFeatures),
    "lpips": (StageTerm, LPIPS),
    "lpips(network=vgg)": (VGGTerm, VGGLPIPS),
}
PIXELS = ("encode.codec=pixels", "model.patch=8", "flow.predict=x")


class Batch:
    def __init__(self, x0):
        self.x0 = x0


def view(x0, x):
    return View(Batch(x0), None, None, None, x, {})


@pytest.fixture(params=TERMS)
def name(request):
    return request.param


@pytest.fixture(autouse=True)
def vgg_at_hand(monkeypatch, tmp_path):
    """The package may not be installed here: its place is taken by random weights, which have the
    same shapes."""
    monkeypatch.setattr(registry, "installed", lambda name: tmp_path / name)


@pytest.fixture(scope="module")
def vgg():
    torch.manual_seed(0)
    network = VGG()
    for head in network.heads:
        torch.nn.init.uniform_(head)
    return network


@pytest.fixture
def term(name, vgg):
    return TERMS[name][0](vgg if "vgg" in name else load_teacher(), "cpu")


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
    assert run.terms[-1] == TERMS[name][1]()
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
        difference = torch.nn.functional.normalize(one, dim=1) - torch.nn.functional.normalize(
            other, dim=1
        )
        expected += difference.square().sum((1, 2, 3)) / (one.shape[2] * one.shape[3])
    assert torch.allclose(StageTerm(network, "cpu")(view(x0, x)), expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "8 channels, stride 4"),
        (("encode.codec=pixels", "model.patch=8"), "predicts 'velocity'"),
        (("flow.predict=x",), "8 channels, stride 4"),
        (
            ("encode.codec=pixels", "model.patch=5", "data.size=10", "flow.predict=x"),
            "sides (that are|of).* px, found 10 px",
        ),
    ],
)
def test_refused_when_the_phrase_is_read(tiny, name, settings, said):
    with pytest.raises(BadInput, match=said):
        tiny(f"spark + {name}", *settings)


def test_the_prediction_is_clamped_to_a_picture(term, x0):
    """As published: beyond black and white nothing more is seen, and nothing is learned there."""
    far = (3 * x0).requires_grad_()
    outside = far.detach().abs() > 1
    term(view(x0, far)).sum().backward()
    assert outside.any() and not far.grad[outside].any() and far.grad[~outside].any()
    assert torch.equal(term(view(x0, 3 * x0)), term(view(x0, (3 * x0).clamp(-1, 1))))


def test_through_vgg_it_is_lpips_with_its_learned_weights(vgg, x0):
    """Equation 1 of arXiv:1801.03924, written out place by place of the coarsest map."""
    x = x0.flip(3)
    with torch.no_grad():
        found = VGGTerm(vgg, "cpu")(view(x0, x))
        expected = torch.zeros(3)
        for one, other, head in zip(vgg(x), vgg(x0), vgg.heads, strict=True):
            rows, columns = one.shape[2:]
            for r in range(rows):
                for c in range(columns):
                    a, b = (
                        h[:, :, r, c] / h[:, :, r, c].norm(dim=1, keepdim=True)
                        for h in (one, other)
                    )
                    expected += ((a - b) ** 2 @ head.flatten()) / (rows * columns)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(found, vgg.lpips(x, x0), rtol=1e-3, atol=1e-5)


def test_the_choice_of_network_is_in_the_key_and_never_made_by_the_machine(tiny, monkeypatch):
    run, real = (tiny(f"spark + {name}", *PIXELS) for name in ("lpips", "lpips(network=vgg)"))
    assert (
        key(run, 0) != key(real, 0)
        and run.terms[-1].kind == "lpips"
        and real.terms[-1].kind == "vgg_lpips"
    )
    pinned = registry.PACKAGES["stlpips-pytorch"].files.values()
    assert set(VGGLPIPS().hashes().values()) == set(pinned)

    def absent(name):
        raise BadInput(f"the package {name} is not installed", "pip install it")

    monkeypatch.setattr(registry, "installed", absent)
    with pytest.raises(BadInput, match="stlpips-pytorch is not installed"):
        tiny("spark + lpips(network=vgg)", *PIXELS)
    with pytest.raises(BadInput, match="network"):
        tiny("spark + lpips(network=alex)", *PIXELS)
    assert str(UseLPIPS(network="vgg")) == "lpips(network=vgg)"
    monkeypatch.undo()
    with pytest.raises(BadInput, match="leave out teacher=supervised"):
        tiny("spark + lpips(network=vgg, teacher=supervised)", *PIXELS)


def test_a_judge_that_the_run_learns_from_is_refused(tiny):
    run, real = (tiny(f"spark + {name}", *PIXELS) for name in ("lpips", "lpips(network=vgg)"))
    for judges in ((), ("lite0",)):
        require_impartial(real, judges)
    require_impartial(run, ("lite0", "vgg"))
    with pytest.raises(
        BadInput, match="the arm 'b' learns from the network that the judge 'vgg' looks with"
    ):
        require_impartial(real, ("lite0", "vgg"), "the arm 'b'")


def test_the_real_network_where_it_is_installed(x0, monkeypatch):
    monkeypatch.undo()
    try:
        registry.installed("stlpips-pytorch")
    except BadInput as error:
        pytest.skip(error.message)
    term = VGGLPIPS().build(SimpleNamespace(system=SimpleNamespace(device="cpu")))
    x = (x0 + 0.1 * torch.randn_like(x0)).requires_grad_()
    term(view(x0, x)).sum().backward()
    assert (
        x.grad.isfinite().all()
        and (term(view(x0, x)) > 1e-4).all()
        and term(view(x0, x0)).abs().max() < 1e-6
    )


def test_the_network_never_judges():
    """Training on the test would win by construction: the terms' network is no metric's."""
    from fulcrum.files.shipped import asset_hash

    own = set(PerceptualFeatures().hashes().values()) | set(LPIPS().hashes().values())
    assert own == {asset_hash("teacher")} and not own & {
        asset_hash("judge"),
        asset_hash("features"),
    }
