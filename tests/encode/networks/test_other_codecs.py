"""The codecs beside the first: what their cards promise, what they were made for, and what is
refused."""

from itertools import permutations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from fulcrum.data.source import WorldSource
from fulcrum.files.shipped import NAMES, card
from fulcrum.judge.card import NotComparable, compatible
from fulcrum.levers.codecs import AlignedCodec, UseLatentAlignment, WideCodec
from fulcrum.measure.evaluation import loss_of
from fulcrum.measure.metrics.means import ValidationLoss
from fulcrum.networks.codec import load_codec
from fulcrum.networks.fillers import KL, Pixels, TunedKL
from fulcrum.networks.network_hash import to_bytes, to_unit
from fulcrum.networks.teacher import load_teacher
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import apply
from fulcrum.spec.record import tree
from fulcrum.training.build import build
from tools.assets.fit_codec import psnr

# dB: what was measured on these pictures, less one.
FLOOR = {
    "codec_wide": {"synthetic": 38.0, "real": 34.0},
    "codec_aligned": {"synthetic": 32.2, "real": 29.5},
}
CHANNELS = {
    name: card(name)["config"]["channels"] for name in ("codec", "codec_wide", "codec_aligned")
}


def pictures(domain, first, count):
    return torch.from_numpy(
        WorldSource("validation", domain, 32, 4000).read(np.arange(first, first + count)).images
    )


@pytest.mark.parametrize("domain", ["synthetic", "real"])
@pytest.mark.parametrize("name", FLOOR)
def test_pictures_come_back(name, domain):
    images, codec = pictures(domain, 2000, 96), load_codec(name)
    latents = codec.encode(to_unit(images))
    found = psnr(to_bytes(codec.decode(latents)), images)
    assert latents.shape == (96, CHANNELS[name], 8, 8)
    assert found > FLOOR[name][domain]
    assert found == pytest.approx(card(name)["quality"][f"psnr_{domain}_32"], abs=1.0)
    assert (
        latents.mean((0, 2, 3)).abs().max() < 0.3 and (latents.std((0, 2, 3)) - 1).abs().max() < 0.2
    )


def test_more_channels_keep_more_of_a_picture():
    found = {
        name: card(name)["quality"]["psnr_real_32"]
        for name in ("codec", "codec_wide", "codec_aligned")
    }
    assert found["codec_wide"] > found["codec"]


def test_a_levers_card_tells_what_its_codec_keeps():
    found = {name: f"{card(name)['quality']['psnr_real_32']:.1f}" for name in CHANNELS}
    for lever in (WideCodec, AlignedCodec):
        assert (
            f"at {found[lever.asset]} dB instead of {found['codec']} (32 px, real)"
            in lever.card.warns
        )


def agreement(codec):
    """How well a linear map of a cell's latent points where the teacher does, on pictures it was
    not fitted to."""
    pixels, teacher = to_unit(pictures("real", 0, 192)), load_teacher()
    cells = codec.encode(pixels).flatten(2).transpose(1, 2)  # (n, N, C)
    cells = torch.cat([cells, torch.ones_like(cells[..., :1])], -1)
    wanted = teacher.tokens(pixels)  # (n, N, E)
    seen = torch.linalg.lstsq(cells[:128].flatten(0, 1), wanted[:128].flatten(0, 1)).solution
    return float(F.cosine_similarity(cells[128:] @ seen, wanted[128:], dim=-1).mean())


def test_the_aligned_latent_says_what_the_teacher_sees():
    # 0.78 and 0.89 were measured
    plain, aligned = agreement(load_codec()), agreement(load_codec("codec_aligned"))
    assert aligned > plain + 0.1


def test_cards_say_how_they_were_made():
    wide, aligned, plain = (
        card(name)["built"] for name in ("codec_wide", "codec_aligned", "codec")
    )
    assert aligned["align"] == 1.0 and "align" not in plain and "align" not in wide
    lever, measured = {"align", "teacher"}, {"seconds", "command"}
    equal = [
        {name: value for name, value in built.items() if name not in lever | measured}
        for built in (wide, aligned, plain)
    ]
    assert equal[0] == equal[1] == equal[2]  # steps, rate, seed, pictures: a swap is one change
    assert {"codec_wide", "codec_aligned"} <= set(NAMES)
    assert sum(card(name)["bytes"] for name in NAMES) < 20e6


def test_the_first_codec_is_described_as_it_always_was():
    assert tree(KL()) == {
        "kind": "kl_codec",
        "stride": 4,
        "channels": CHANNELS["codec"],
        "asset": "codec",
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"asset": "codec_wide"},
            (
                "'codec_wide' has {codec_wide} channels, not {codec}; write"
                " kl_codec.asset=codec_wide, channels={codec_wide}"
            ),
        ),
        ({"channels": 99}, "'codec' has {codec} channels, not 99"),
        ({"asset": "teacher"}, "is a Teacher, not a KL codec"),
        ({"asset": "kodec"}, "no card for the part 'kodec'"),
        ({"asset": "../codec"}, "not the name of a shipped codec"),
    ],
)
def test_a_codec_that_is_not_what_the_run_says_is_refused(wrong, said):
    for record in (KL, TunedKL):
        with pytest.raises(ValidationError, match=said.format(**CHANNELS)):
            record(**wrong)


def test_a_phrase_with_the_wrong_channels_is_refused_when_it_is_read(tiny):
    wide = CHANNELS["codec_wide"]
    with pytest.raises(BadInput, match=f"{wide} channels, not {CHANNELS['codec']}"):
        tiny("spark", "encode.codec=kl_codec(asset=codec_wide)")
    assert tiny(
        "spark", f"encode.codec=kl_codec(asset=codec_wide, channels={wide})"
    ) == WideCodec().edit(tiny())


def test_two_swaps_conflict_and_a_swapped_codec_may_be_trained(tiny):
    for pair in permutations((WideCodec(), AlignedCodec())):
        with pytest.raises(BadInput, match="leave one of them out"):
            apply(tiny(), pair)
    wide, again = (
        apply(tiny(), pair) for pair in permutations((WideCodec(), UseLatentAlignment()))
    )
    assert wide == again and wide.encode.codec == TunedKL(
        asset="codec_wide", channels=CHANNELS["codec_wide"]
    )
    assert build(wide).codec.channels == CHANNELS["codec_wide"]


@pytest.mark.parametrize("lever", [WideCodec(), AlignedCodec(), UseLatentAlignment()])
def test_pixels_have_no_codec_to_change(lever, tiny):
    run = put(put(put(tiny(), "model.patch", 8), "encode.codec", Pixels()), "budget.batch", 8)
    with pytest.raises(BadInput, match="this run has 'pixels'"):
        apply(run, (lever,))
    assert "replaced the codec" in lever.needs(run)


def test_losses_in_two_latent_spaces_refuse_comparison(tiny):
    runs = {
        "plain": tiny(),
        **{
            lever.name: lever.edit(tiny())
            for lever in (WideCodec(), AlignedCodec(), UseLatentAlignment())
        },
    }
    cards = {
        name: (
            ValidationLoss(
                n=2,
                loss=1.0,
                sd=0.1,
                latents=loss_of(run)["latents"],
                objective="v",
                pictures="p",
                draws="d",
            )
            .measured()
            .card
        )
        for name, run in runs.items()
    }
    for name in runs:
        for other in runs:
            if name == other:
                assert compatible(cards[name], cards[other]) == ()
            else:
                with pytest.raises(NotComparable, match="extractor"):
                    compatible(cards[name], cards[other])


def test_the_wide_codec_costs_its_patch_linears(tiny):
    wide, plain = build(WideCodec().edit(tiny())), build(tiny())
    counted = sum(p.numel() for p in wide.parameters()) / sum(p.numel() for p in plain.parameters())
    assert WideCodec().cost(tiny()).parameters == pytest.approx(counted, rel=1e-9) and counted > 1
    assert AlignedCodec().cost(tiny()).flops == 1.0
