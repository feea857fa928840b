"""REPA-E held to its authors' computation, written out plainly: what reaches the codec, through
what, and what does not."""

import copy

import pytest
import torch
from torch.nn import functional as F

from fulcrum.levers.catalog import CATALOG
from fulcrum.networks.teacher import load_teacher
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import sizes_of, stem_flops
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import clip
from fulcrum.training.feed import Feed
from fulcrum.training.loop import clip_gradients, gradients, train
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.model.transformer import ALIGN

PLAIN = "spark + repa + end_to_end_codec"
ROUTED = "spark + repa + tread(start=0, end=2) + end_to_end_codec"


def built_run(run, cache, **system):
    """A run whose denoiser has learned something: as it begins, every block is the identity."""
    built = assemble(run, 0, System(**system), Feed(run, 0, cache))
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in (*built.step.backbone.parameters(), *built.step.terms.parameters()):
            weight.add_(0.1 * torch.randn(weight.shape, generator=noise))
    return built


def alignment_of(run):
    return next(term for term in run.terms if term.kind == "alignment")


def gradients_of(built, weights=None):
    built.step.zero_grad(set_to_none=True)
    batch, draw = built.feed.at(0)
    built.step(batch, draw, built.weights(0) if weights is None else weights).total.backward()
    grads = {name: p.grad for name, p in built.step.named_parameters()}
    built.step.zero_grad(set_to_none=True)
    return grads


def of_codec(grads):
    return {
        name.removeprefix("codec."): grad
        for name, grad in grads.items()
        if name.startswith("codec.")
    }


def authors_gradient(built):
    """A step of train_repae.py for the autoencoder, t counted from data (0) to noise (1) as theirs
    is, without the GAN."""
    step, run, (batch, draw) = built.step, built.run, built.feed.at(0)
    vae, model, projector = (
        copy.deepcopy(one) for one in (step.codec, step.backbone, step.terms["alignment"].projector)
    )
    for weight in (*model.parameters(), *projector.parameters()):
        weight.requires_grad = False  # requires_grad(model, False)
    layer = alignment_of(run).tap(run.model.depth)

    mean, log_variance = vae.posterior(batch.x0)
    z = mean + torch.exp(0.5 * log_variance) * draw.extra["codec/noise"]  # posterior.sample()
    recon = vae.raw_decode(z)
    loss = F.l1_loss(recon, batch.x0)
    lpips = 0.0
    for one, other in zip(
        load_teacher().stages(recon.clamp(-1, 1)), load_teacher().stages(batch.x0), strict=True
    ):
        one, other = (h / torch.sqrt((h**2).sum(1, keepdim=True) + 1e-8) for h in (one, other))
        lpips = lpips + ((one - other) ** 2).sum(1).mean((1, 2))
    loss = loss + 1.0 * lpips.mean()
    loss = loss + 3e-4 * (0.5 * (mean**2 + log_variance.exp() - 1.0 - log_variance)).mean()

    bn = torch.nn.BatchNorm2d(run.encode.codec.channels, eps=0.0, affine=False)
    bn.running_mean, bn.running_var = vae.shift.flatten(), vae.scale.flatten() ** -2
    bn.eval()  # model.eval(): running statistics, and every label stays
    t = draw.t.view(-1, 1, 1, 1)
    model_input = (1 - t) * bn(z) + t * draw.eps
    tap = model(
        model_input, draw.t, (batch.text.emb, batch.text.mask), keep=draw.keep, taps=(layer,)
    ).taps[layer]
    zs_tilde = projector.out(F.silu(projector.middle(F.silu(projector.into(tap.h)))))
    zs = batch.teacher["world"]
    if tap.index is not None:  # a routed block has some of the tokens
        zs = torch.stack([row[kept] for row, kept in zip(zs, tap.index, strict=True)])
    proj_loss = torch.zeros(())
    for z_j, z_tilde_j in zip(zs, zs_tilde, strict=True):
        proj_loss = (
            proj_loss - (F.normalize(z_j, dim=-1) * F.normalize(z_tilde_j, dim=-1)).sum(-1).mean()
        )
    proj_loss = proj_loss / len(zs)
    (loss + 1.5 * proj_loss).backward()
    return {name: weight.grad for name, weight in vae.named_parameters()}


def apart(one, two):
    """Length of the difference over the length of the first."""
    difference = torch.stack([(one[name] - two[name]).norm() for name in one]).norm()
    return float(difference / torch.stack([grad.norm() for grad in one.values()]).norm())


@pytest.fixture(scope="module")
def built(tiny, cache):
    return built_run(tiny(PLAIN), cache)


@pytest.mark.parametrize("phrase", [PLAIN, ROUTED])
def test_the_codecs_gradient_is_the_authors(phrase, tiny, cache):
    built = built_run(tiny(phrase), cache)
    # in the authors' eval mode captions that are dropped elsewhere stay
    assert built.feed.at(0)[1].drop_text.any()
    ours, theirs = of_codec(gradients_of(built)), authors_gradient(built)
    assert set(ours) == set(theirs) and apart(theirs, ours) < 1e-5


def test_the_alignment_depends_on_the_denoiser(built, tiny, cache):
    """On its first blocks and on its projector, and on nothing behind the tap."""
    term = {"end_to_end_alignment": 1.5}
    layer = alignment_of(built.run).tap(built.run.model.depth)
    blocks, projector = built.step.backbone.blocks, built.step.terms["alignment"].projector
    before = of_codec(gradients_of(built, term))
    before = {name: grad for name, grad in before.items() if grad is not None}  # the encoder's
    for weight, reads in (
        (blocks[0].down_proj.weight, True),
        (blocks[layer].attention.img_qkv_proj.weight, True),
        (projector.middle.weight, True),
        (blocks[layer + 1].down_proj.weight, False),
    ):
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.mul_(-1.0)
        after = of_codec(gradients_of(built, term))
        with torch.no_grad():
            weight.copy_(kept)
        assert (
            (apart(before, after) > 1e-3)
            if reads
            else all(torch.equal(before[n], after[n]) for n in before)
        )

    # as it was: it does not ask the denoiser
    other = built_run(tiny("spark + repa + latent_alignment"), cache)
    alone = of_codec(gradients_of(other, {"codec_alignment": 1.5}))
    with torch.no_grad():
        for weight in other.step.backbone.parameters():
            weight.mul_(-1.0)
    again = of_codec(gradients_of(other, {"codec_alignment": 1.5}))
    assert all(torch.equal(grad, again[name]) for name, grad in alone.items() if grad is not None)


def test_what_belongs_to_one_does_not_reach_the_other(built):
    codecs = {"end_to_end_alignment": 1.5, "codec_reconstruction": 1.0, "codec_perceptual": 1.0}
    assert {
        name.split(".")[0] for name, grad in gradients_of(built, codecs).items() if grad is not None
    } == {"codec"}
    denoisers = {"flow_matching": 1.0, "alignment": 0.5}
    alone, together = gradients_of(built, denoisers), gradients_of(built)
    assert all((grad is None) == name.startswith("codec.") for name, grad in alone.items())
    assert all(
        torch.equal(grad, together[name]) for name, grad in alone.items() if grad is not None
    )


def test_the_denoiser_is_shown_the_sample_that_is_decoded(built):
    step, (batch, draw) = built.step, built.feed.at(0)
    coded = step.look(batch, draw).coded
    sample = coded.mean + (0.5 * coded.log_variance).exp() * draw.extra["codec/noise"]
    assert torch.equal(coded.raw, sample) and not torch.equal(sample, coded.mean)
    assert torch.equal(step.look(batch, draw).batch.x0, step.codec.normalised(sample).detach())
    assert torch.equal(coded.decoded(), step.codec.raw_decode(sample))
    torch.testing.assert_close(coded.moments()[0], sample.detach().double().mean((0, 2, 3)))


def test_codec_and_denoiser_are_clipped_apart(built):
    """A codec whose gradient is a thousand times longer shortens nobody else's."""
    gradients(built, 0)
    step = built.step
    denoiser, codec = step.clipped_apart()
    assert len(denoiser) + len(codec) == len(list(step.parameters())) and len(codec) == len(
        list(step.codec.parameters())
    )
    for weight in codec:
        weight.grad.mul_(1e3)
    norms = [
        torch.stack([weight.grad.norm() for weight in part]).norm() for part in (denoiser, codec)
    ]
    direction = denoiser[0].grad.clone()
    most = 0.5 * float(norms[0])
    torch.testing.assert_close(clip_gradients(step.clipped_apart(), most), torch.hypot(*norms))
    for part in (denoiser, codec):
        assert float(clip(part, float("inf"))) == pytest.approx(most, rel=1e-4)
    torch.testing.assert_close(denoiser[0].grad, 0.5 * direction, rtol=1e-4, atol=1e-8)
    step.zero_grad(set_to_none=True)


@pytest.mark.parametrize("phrase", [PLAIN, ROUTED])
def test_two_lanes_are_one(phrase, tiny, cache):
    one, two = (gradients_of(built_run(tiny(phrase), cache, threads=lanes)) for lanes in (1, 2))
    assert apart(one, two) < 1e-5


def test_the_stem_goes_with_the_denoiser(tiny, cache):
    """It has no weights of its own: after training it has the denoiser's, and a copy of a step has
    its own."""
    built = assemble(tiny(PLAIN), 0, System(), Feed(tiny(PLAIN), 0, cache))
    other = copy.deepcopy(built.step)
    train(built, State(), [], lambda: False)
    built.step.refresh()
    own = dict(built.step.backbone.named_parameters())
    stem = dict(built.step.stem.backbone.named_parameters())
    assert stem and all(torch.equal(weight, own[name]) for name, weight in stem.items())
    assert not any(name.startswith("stem") for name in built.step.state_dict())
    layer = alignment_of(built.run).tap(built.run.model.depth)
    assert len(built.step.stem.backbone.blocks) == layer + 1 < built.run.model.depth
    other.load_state_dict(built.step.state_dict())
    other.refresh()
    batch, draw = built.feed.at(0)
    assert torch.equal(other(batch, draw).total, built.step(batch, draw).total)


@pytest.mark.parametrize(
    "phrase",
    [
        PLAIN,
        ROUTED,
        "spark + repa(layer=-1) + sprint + end_to_end_codec",
        "spark + irepa + end_to_end_codec",
    ],
)
def test_flops_of_the_frozen_pass(phrase, tiny, cache):
    """By itself: beside the codec's own cost it would hide."""
    run = tiny(phrase)
    built = built_run(run, cache)
    batch, draw = built.feed.at(0)
    view = built.step.look(batch, draw)
    latent = view.coded.latent.detach().requires_grad_()
    # no padding, which formulas leave out
    last, words = alignment_of(run).tap(run.model.depth), 2 * ALIGN
    mask = torch.ones(len(latent), words, dtype=torch.bool)
    text = batch.text._replace(emb=batch.text.emb[:, :1].expand(-1, words, -1), mask=mask)

    def through():
        tokens = built.step.read_by_stem(latent, batch._replace(text=text), draw)[last]
        tokens.h.square().sum().backward()

    spent = counted(through) / len(batch.x0)
    assert stem_flops(
        sizes_of(run), run.tokens, words, last, run.model.route.kept(run.tokens)
    ) == pytest.approx(spent, rel=0.01)


@pytest.mark.parametrize(
    ("phrase", "reason"),
    [
        ("spark + end_to_end_codec", "denoiser's own alignment, and this run has none"),
        (
            "spark + end_to_end_codec + repa @ (0, 0.5)",
            "denoiser's own alignment, and this run has none",
        ),
        ("spark + end_to_end_codec + repa(until=0.5)", "ends after 0.5 of the budget"),
        ("spark + repa + end_to_end_codec + latent_alignment", "both write encode.codec"),
        ("spark + repa + end_to_end_codec + pixels", "both write encode.codec"),
        ("spark + latent_alignment(teacher=dino)", "no teacher is called 'dino'"),
        ("spark + repa + end_to_end_codec(align=0)", "greater than 0"),
        ("spark + repa + end_to_end_codec(kl=2)", "at most 1"),
    ],
)
def test_refused_when_the_phrase_is_read(phrase, reason):
    with pytest.raises(BadInput, match=reason):
        parse(phrase, CATALOG)


def test_either_order_is_one_run():
    one, two = (parse(text, CATALOG).run for text in (PLAIN, "spark + end_to_end_codec + repa"))
    assert one == two
