"""The codec's terms against hand-computed values, and what they refuse."""

import pytest
import torch

from fulcrum.networks.codec import TunedCodec
from fulcrum.networks.rows import Batch
from fulcrum.spec.slots import Normal
from fulcrum.training.feed import needs
from fulcrum.training.flow.noise import Draw, Draws
from fulcrum.training.loss.codec_terms import LatentAlignmentTerm, ReconstructionTerm
from fulcrum.training.loss.fillers import CodecAlignment
from fulcrum.training.loss.terms import Coded, Losses, View


def view(coded, teacher=None):
    batch = Batch(
        x0=torch.zeros(2, 1, 2, 2),
        text=None,
        teacher={"world": teacher},
        ids=torch.arange(2),
        empty_text=None,
    )
    draw = Draw(
        t=torch.zeros(2),
        eps=torch.zeros(2, 1, 2, 2),
        drop_text=torch.zeros(2, dtype=torch.bool),
        keep=None,
        extra={},
    )
    empty = torch.zeros(2, 1, 2, 2)
    return View(batch, draw, v=empty, target=empty, x=empty, taps={}, coded=coded)


def coded(**given):
    empty = torch.zeros(2, 1, 2, 2)
    names = ("pixels", "mean", "log_variance", "raw", "latent")
    decoded = given.get("decoded", empty)
    return Coded(
        **{name: given.get(name, empty) for name in names}, decoded=lambda: decoded, taps=dict
    )


def test_reconstruction_by_hand():
    """Pixels 0: the error is the decoded picture itself."""
    mean, log_variance = torch.full((2, 1, 2, 2), 0.5), torch.full((2, 1, 2, 2), -2.0)
    error = torch.tensor([0.9, -0.6])
    decoded = error.view(2, 1, 1, 1).expand(2, 1, 2, 2)
    seen = view(coded(mean=mean, log_variance=log_variance, decoded=decoded))
    kl = 0.5 * (0.25 + torch.tensor(-2.0).exp() - 1 + 2.0)
    torch.testing.assert_close(
        ReconstructionTerm(1.0, 0.1, 0.3)(seen), error**2 + 0.1 * error.abs() + 0.3 * kl
    )
    torch.testing.assert_close(ReconstructionTerm(0.0, 1.0, 0.3)(seen), error.abs() + 0.3 * kl)


def test_alignment_is_zero_where_the_projection_points_the_teachers_way():
    term = LatentAlignmentTerm("world", cells=2, channels=1, teacher_width=3, hidden=4)
    latent = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    said = term.out(
        torch.nn.functional.silu(
            term.middle(
                torch.nn.functional.silu(
                    term.into(latent.unfold(2, 2, 2).unfold(3, 2, 2).reshape(2, 4, 4))
                )
            )
        )
    )
    near = term(view(coded(latent=latent), teacher=5 * said.detach()))
    torch.testing.assert_close(near, torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        term(view(coded(latent=latent), teacher=-said.detach())), torch.full((2,), 2.0)
    )


def test_a_grid_that_does_not_match_is_refused():
    term = LatentAlignmentTerm("world", cells=1, channels=1, teacher_width=3, hidden=4)
    with pytest.raises(ValueError, match="16 tokens of 1 x 1 cells.*side 2"):
        term(view(coded(latent=torch.zeros(2, 1, 4, 4)), teacher=torch.zeros(2, 4, 3)))


def test_without_a_trained_codec_there_is_nothing_to_train():
    with pytest.raises(ValueError, match="codec that is trained"):
        ReconstructionTerm(1.0, 0.1, 0.3)(view(None))


def test_the_noise_has_the_shape_of_the_latent(tiny):
    run = tiny("spark + latent_alignment")
    side = run.data.size // run.encode.codec.stride
    shape = (run.encode.codec.channels, side, side)
    assert needs(run) == {"codec/noise": Normal(shape)} and needs(tiny()) == {}
    draws = Draws(seed=0, time=lambda u: u, shape=shape, drop_text=0.0, needs=needs(run))
    whole, part = draws.at(0, 6), draws.at(4, 2)
    noise = whole.extra["codec/noise"]
    assert torch.equal(noise[4:], part.extra["codec/noise"]) and not torch.equal(noise, whole.eps)


def test_parts_of_a_batch_add_up():
    raw = torch.randn(6, 2, 3, 3, generator=torch.Generator().manual_seed(1))

    def losses(rows):
        share = len(rows) / 6
        return Losses(
            torch.tensor(1.0) * share,
            {"a": torch.tensor(2.0) * share},
            coded(raw=rows).moments() * share,
        )

    summed = losses(raw[:4]).plus(losses(raw[4:]))
    torch.testing.assert_close(summed.moments, coded(raw=raw).moments())
    assert float(summed.total) == 1.0 and float(summed.parts["a"]) == 2.0
    assert Losses(torch.zeros(()), {}).plus(Losses(torch.zeros(()), {})).moments is None


def test_settling_is_a_moving_average_of_mean_and_square():
    codec = TunedCodec(channels=2)
    codec.keep = 0.75
    codec.settle(torch.tensor([[1.0, 0.0], [5.0, 1.0]], dtype=torch.float64))
    shift = torch.tensor([0.25, 0.0])
    torch.testing.assert_close(codec.shift.flatten(), shift)
    torch.testing.assert_close(
        codec.scale.flatten(), (torch.tensor([0.75 + 1.25, 1.0]) - shift**2) ** -0.5
    )


def test_settings_have_ranges(tiny):
    with pytest.raises(ValueError, match="greater than 0"):
        CodecAlignment(weight=0.0)
    with pytest.raises(Exception, match="no teacher is called 'world'"):
        CodecAlignment().widths(tiny())
