"""A codec trained with its denoiser: what reaches it, what follows it, and that nothing of it is
lost on the way."""

import copy

import numpy as np
import pytest
import torch

from fulcrum.levers.codecs import EndToEndCodec
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure.evaluation import Held, loss_of
from fulcrum.networks.codec import TunedCodec, load_codec
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.average import drawn_weights
from fulcrum.training.build import assemble, build
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.feed import Feed
from fulcrum.training.fillers import EMA, Trunk
from fulcrum.training.interop.diffusers import pipeline_of
from fulcrum.training.interop.export import export_codec
from fulcrum.training.loop import train
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights

PROMPTS = ["a large red circle on the left", "a small blue square"]


@pytest.fixture(scope="module")
def run(tiny):
    return tiny("spark + repa + end_to_end_codec")


def built_run(run, cache, **system):
    return assemble(run, 0, System(**system), Feed(run, 0, cache))


@pytest.fixture(scope="module")
def trained(run, cache):
    built = built_run(run, cache)
    train(built, State(), [], lambda: False)
    return built


def codec_gradients(built, weights):
    batch, draw = built.feed.at(0)
    built.step(batch, draw, weights).total.backward()
    found = {name: p.grad for name, p in built.step.codec.named_parameters()}
    built.step.zero_grad(set_to_none=True)
    return found


def test_the_batch_carries_pixels_and_the_terms_see_latents(run, cache):
    built = built_run(run, cache)
    batch, draw = built.feed.at(0)
    rows, size = run.budget.batch, run.data.size
    assert batch.x0.shape == (rows, 3, size, size)
    assert (
        draw.extra["codec/noise"].shape
        == draw.eps.shape
        == (rows, *load_codec().encode(batch.x0).shape[1:])
    )
    view = built.step.look(batch, draw)
    assert (
        view.batch.x0.shape == draw.eps.shape
        and not view.batch.x0.requires_grad
        and view.coded.latent.requires_grad
    )
    mean = built.step.codec.normalised(view.coded.mean)
    # it begins as shipped
    torch.testing.assert_close(mean, load_codec().encode(batch.x0), atol=1e-4, rtol=0)


def test_the_diffusion_loss_does_not_reach_the_codec(run, cache):
    built = built_run(run, cache)
    assert all(g is None for g in codec_gradients(built, {"flow_matching": 1.0}).values())
    own = {"codec_reconstruction": 1.0, "codec_perceptual": 1.0, "end_to_end_alignment": 1.5}
    alone = codec_gradients(built, own)
    assert all(g is not None and g.isfinite().all() for g in alone.values())
    assert all(g.abs().max() > 0 for name, g in alone.items())
    with_denoiser = codec_gradients(built, own | {"flow_matching": 1.0, "alignment": 0.5})
    assert all(torch.equal(alone[name], with_denoiser[name]) for name in alone)


def test_alignment_reaches_the_encoder_alone(run, cache):
    found = codec_gradients(built_run(run, cache), {"end_to_end_alignment": 1.5})
    assert {
        name.split(".")[0] for name, g in found.items() if g is not None and g.abs().max() > 0
    } == {
        "encoder",
        "quant_conv",
    }


def test_codec_and_statistics_move(trained):
    shipped = TunedCodec.begin("codec", keep=0.5, rate=1.0).state_dict()
    moved = {
        name
        for name, value in trained.step.codec.state_dict().items()
        if not torch.equal(value, shipped[name])
    }
    assert moved == set(shipped)  # every kernel, every bias, shift and scale


def test_a_step_changes_nothing_by_itself(run, cache):
    """Pure: the statistics move after the update, by the loop, never inside `forward`."""
    built = built_run(run, cache)
    before = weights_hash(built.step.state_dict())
    batch, draw = built.feed.at(0)
    one, two = built.step(batch, draw), built.step(batch, draw)
    assert torch.equal(one.total, two.total) and weights_hash(built.step.state_dict()) == before


def test_statistics_follow_the_latents(run, cache):
    """Fed one batch for ever they become its own: latents of zero mean and unit variance."""
    built = built_run(run, cache)
    codec, (batch, draw) = built.step.codec, built.feed.at(0)
    codec.keep = 0.5
    with torch.no_grad():
        codec.quant_conv.bias += 3.0  # a latent that has gone astray
        codec.quant_conv.weight *= 2.0
        moments = built.step(batch, draw).moments  # the weights stay: so does what they say
        for _ in range(40):
            codec.settle(moments)
        latent = built.step.look(batch, draw).coded.latent
    assert latent.mean((0, 2, 3)).abs().max() < 1e-3
    torch.testing.assert_close(
        latent.var((0, 2, 3), correction=0), torch.ones(codec.channels), atol=1e-3, rtol=0
    )


def test_statistics_do_not_depend_on_accumulation(run, cache, trained):
    parts = built_run(run, cache, microbatch=3)
    train(parts, State(), [], lambda: False)
    for name in ("shift", "scale"):
        torch.testing.assert_close(
            getattr(parts.step.codec, name), getattr(trained.step.codec, name), atol=1e-5, rtol=1e-5
        )


def test_the_codec_learns_at_its_own_rate(run, cache):
    """AdamW's first step is as large as its learning rate, whatever the gradient."""
    built = built_run(run, cache)
    before = {name: p.detach().clone() for name, p in built.step.named_parameters()}
    left = [True]
    train(built, State(), [], lambda: not left.pop() if left else True)
    rate = run.optim.lr * built.schedule(0, 8)
    moved = {
        name: float((p.detach() - before[name]).abs().max())
        for name, p in built.step.named_parameters()
    }
    assert max(v for n, v in moved.items() if n.startswith("codec.")) == pytest.approx(
        0.03 * rate, rel=1e-2
    )
    assert max(v for n, v in moved.items() if n.startswith("terms.")) == pytest.approx(
        rate, rel=1e-2
    )


class Killed(Exception):
    pass


def test_three_steps_and_three_are_six(run, tiny, tmp_path, cache, trained):
    """Through the session: what is saved holds the codec, and what is drawn with is what the run
    ended with."""
    (tmp_path / "cache").symlink_to(cache, target_is_directory=True)
    order = Order(
        run,
        0,
        "spark + repa + end_to_end_codec",
        tmp_path,
        System(),
        quiet=True,
        levers=(EndToEndCodec(),),
    )

    def dying(built, folder, state):
        def look(seen):
            if seen.state.images > 24:
                raise Killed

        return [look]

    with pytest.raises(Killed):
        perform(order, print, dying)
    said = []
    result = perform(order, said.append)
    assert any("resumed at 24" in line for line in said)
    weights = trained_weights(RunFolder(tmp_path / result["key"]))
    whole = drawn_weights(trained.step, trained.average)
    assert weights_hash(weights) == result["weights_sha256"] == weights_hash(whole)

    painter = Painter(run, weights, run.encode.codec.build(None), trained.feed.text())
    drawn, expected = (
        torch.cat(list(one.pictures(PROMPTS, 0))) for one in (painter, Painter.of(trained))
    )
    assert torch.equal(drawn, expected)

    longer = put(run, "start", Trunk(run=result["key"], weights_sha256=result["weights_sha256"]))
    begun = build(longer, 0, start=weights)  # a run goes on with its own codec
    assert torch.equal(begun.codec.shift, trained.step.codec.shift)
    # and is not taken up by a run that has another
    with pytest.raises(BadInput, match="do not fit"):
        build(tiny(), 0, start=weights)


def test_pictures_are_decoded_with_the_trained_weights(run, trained):
    weights = drawn_weights(trained.step, trained.average)
    frozen = load_codec()
    painter = Painter(run, weights, frozen, trained.feed.text())
    latents = painter.latents(PROMPTS, 0, np.arange(2))
    expected = copy.deepcopy(trained.step.codec).eval().decode(latents)
    drawn = torch.cat(list(painter.pictures(PROMPTS, 0)))
    assert torch.equal(
        drawn, ((expected.detach().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    )
    other = dict(weights) | {f"codec.{name}": value for name, value in frozen.state_dict().items()}
    assert not torch.equal(
        drawn,
        torch.cat(list(Painter(run, other, frozen, trained.feed.text()).pictures(PROMPTS, 0))),
    )


def test_an_average_is_of_the_denoiser_alone(run, cache):
    averaged = built_run(put(run, "average", EMA(half_life=0.5, every=1)), cache)
    train(averaged, State(), [], lambda: False)
    weights = drawn_weights(averaged.step, averaged.average)
    assert torch.equal(weights["codec.shift"], averaged.step.codec.shift)
    assert not torch.equal(weights["img_in.weight"], averaged.step.backbone.img_in.weight)


def test_held_out_losses_of_two_codecs_refuse_comparison(run, tiny, cache, trained, monkeypatch):
    monkeypatch.setattr(run_evaluation, "VALIDATION", 128)
    weights = drawn_weights(trained.step, trained.average)
    held = Held(run, run.encode.codec.build(None), trained.feed.text(), cache)
    other = dict(weights) | {"codec.shift": weights["codec.shift"] + 0.1}
    one, two = held.loss(weights), held.loss(other)
    assert one.latents != two.latents and one.loss != two.loss
    assert one.latents.split("/")[0] != loss_of(tiny())["latents"]


def test_declared_flops_are_those_counted(run, tiny, cache):
    def cost(spec):
        built = built_run(spec, cache)
        batch, draw = built.feed.at(0)  # what is cached is read before anything is counted
        return counted(lambda: built.step(batch, draw).total.backward())

    base = tiny("spark + repa")
    declared = EndToEndCodec().cost(base)
    assert declared.flops == pytest.approx(cost(run) / cost(base), rel=0.05)
    step, plain = build(run), build(base)
    learned = sum(p.numel() for p in step.parameters()) / sum(p.numel() for p in plain.parameters())
    assert declared.parameters == pytest.approx(learned, rel=1e-6)


def test_a_trained_codec_leaves_with_its_denoiser(run, trained, tmp_path):
    """Written as AutoencoderKL it needs no running statistics: they are in its layers."""
    assert pipeline_of(run) == "PRXPipeline"
    AutoencoderKL = pytest.importorskip(
        "diffusers", reason="what is written is read by diffusers"
    ).AutoencoderKL
    codec = trained.step.codec
    written = AutoencoderKL.from_pretrained(export_codec(codec, tmp_path / "vae")).eval()
    pixels = trained.feed.at(0)[0].x0
    with torch.no_grad():
        latents = codec.encode(pixels)
        torch.testing.assert_close(
            written.encode(pixels).latent_dist.mean, latents, atol=1e-4, rtol=1e-4
        )
        torch.testing.assert_close(
            written.decode(latents).sample, codec.decode(latents), atol=1e-4, rtol=1e-4
        )


def test_a_denoiser_may_go_on_with_a_codec_that_begins_to_learn(run, tiny):
    step = build(run, 1, start=build(tiny(), 0).backbone.state_dict())
    assert torch.equal(step.codec.quant_conv.bias, load_codec().quant_conv.bias)
