"""The levers of captions and data: what a run reads with them, what they refuse, and that three
steps can be taken."""

import numpy as np
import pytest

from fulcrum.data.captions import Chooser
from fulcrum.data.fillers import TOKENS, Filtered, MixedStyles, OneStyle
from fulcrum.data.world.scene import scenes
from fulcrum.data.world.words import captions, tokenize
from fulcrum.levers.captions import MixedCaptions
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.stages import ResolutionLadder, SFTStage
from fulcrum.measure.evaluation import _source, prompts
from fulcrum.spec.edit import during
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import apply, parse
from fulcrum.spec.run import System
from fulcrum.spec.stage import phases
from fulcrum.training.build import assemble, require_witness
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.flow.fillers import LogitNormal
from fulcrum.training.loop import train

SYNTHETIC = "data.source.domain=synthetic"


def trained(tiny, cache, text, *settings):
    """Three steps; the levers are asked for their witness before the first."""
    run = tiny(text, "budget.images=24", *settings)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    require_witness(parse(text, CATALOG, settings).levers, built)
    assert train(built, State(), [], lambda: False).images == 24
    return built


@pytest.mark.parametrize(
    "text, settings",
    [
        ("spark + short_captions", ()),
        ("spark + short_captions(prompts=matched)", ()),
        ("spark + mixed_captions", ()),
        ("spark + mixed_captions @ (0.5, 1)", ()),
        ("spark + real_data", (SYNTHETIC,)),
        ("spark + synthetic_then_real", ()),
        ("spark + sft_stage(start=0.6, count=16)", ()),
        ("spark + resolution_ladder", ()),
        ("spark + caption_filter", ()),
        ("spark + caption_filter", ("data.source.mislabelled=0.2",)),
        (
            (
                "spark + caption_filter + synthetic_then_real + sft_stage(start=0.6, count=16) +"
                " mixed_captions"
            ),
            (),
        ),
        ("spark + resolution_ladder + tread @ (0.5, 1)", ()),
        ("spark + resolution_ladder + tread", ()),
        # one token, none to route, in the first stage
        ("spark + resolution_ladder(start_size=8) + tread", ()),
        ("spark + resolution_ladder(start_size=8) + sprint(full_from=none)", ()),
        ("spark + real_data + synthetic_then_real", (SYNTHETIC,)),
        ("spark + resolution_ladder + repa", ()),
        ("spark + resolution_ladder + pixels + shifted_time", ()),
        ("spark + caption_filter @ (0.5, 1)", ()),
    ],
)
def test_three_steps(text, settings, tiny, cache):
    trained(tiny, cache, text, *settings)


# ---- captions


def test_mixed_captions_are_of_all_lengths_and_the_prompts_stay(tiny, cache):
    run = tiny("spark + mixed_captions(long=1, medium=1, short=2)")
    assert run.data.caption == MixedStyles(
        long=1.0, medium=1.0, short=2.0
    ) and run.sample.prompts == OneStyle(style="long")
    prompts = Feed(run, 0, cache).prompts_at(0, 64)
    words = [len(prompt.split()) for prompt in prompts]
    assert min(words) <= 6 and max(words) >= 15
    assert CATALOG.levers["mixed_captions"].card.claims == (), "nothing was published in numbers"
    with pytest.raises(ValueError, match="at least two lengths"):
        MixedCaptions(long=1.0, medium=0.0, short=0.0)


def test_a_lever_in_a_stage_is_asked_what_it_needs_in_that_stage(tiny):
    run = tiny("spark + mixed_captions @ (0.5, 1)")
    assert [type(phase.run.data.caption) for phase in phases(run)] == [OneStyle, MixedStyles]
    with pytest.raises(BadInput, match="flow.time two values at the same time"):
        tiny("spark + resolution_ladder + uniform_time @ (0.2, 0.6)")
    with pytest.raises(BadInput, match="no whole batch"):
        tiny("spark + mixed_captions @ (0.5, 0.51)")


def test_mixed_and_short_captions_conflict_in_both_orders(tiny):
    for text in (
        "spark + mixed_captions + short_captions",
        "spark + short_captions + mixed_captions",
    ):
        with pytest.raises(BadInput, match="captioned in another way|leave one of them out"):
            tiny(text)


def test_short_captions_has_two_honest_forms(tiny):
    kept, matched = tiny("spark + short_captions"), tiny("spark + short_captions(prompts=matched)")
    short = OneStyle(style="short")
    assert kept.data.caption == matched.data.caption == short
    assert kept.sample.prompts == OneStyle(style="long") and matched.sample.prompts == short
    asked = [
        np.mean([len(text.split()) for text in prompts(run, 40).texts])
        for run in (tiny(), kept, matched)
    ]
    assert asked[0] == asked[1] > 2 * asked[2], "kept: judged by the very prompts of the baseline"
    with pytest.raises(BadInput, match="short already"):
        tiny("spark + short_captions", "data.caption.style=short")


@pytest.mark.parametrize("most", TOKENS)
def test_the_counted_tokens_are_those_of_the_captions(most):
    drawn = scenes("train", np.arange(1_500), most)
    for style, counted in TOKENS[most].items():
        assert 1 + np.mean(
            [len(tokenize(text)) for text in captions(drawn, style).texts]
        ) == pytest.approx(counted, rel=0.03)
    assert (
        MixedStyles(long=1.0, medium=0.0, short=1.0).tokens(most)
        == (TOKENS[most]["long"] + TOKENS[most]["short"]) / 2
    )


# ---- sources


def test_real_data_on_real_data_says_how_to_get_its_baseline(tiny):
    with pytest.raises(BadInput) as caught:
        tiny("spark + real_data")
    assert "real already" in caught.value.message and "--set data.source.domain=synthetic" in str(
        caught.value
    )
    assert tiny("spark + real_data", SYNTHETIC) == tiny()


def test_synthetic_first_then_real(tiny, cache):
    built = trained(tiny, cache, "spark + synthetic_then_real(until=0.34)")
    assert [(phase.end, phase.run.data.source.domain) for phase in built.phases] == [
        (8, "synthetic"),
        (24, "real"),
    ]
    with pytest.raises(BadInput, match="synthetic already"):
        tiny("spark + synthetic_then_real", SYNTHETIC)
    for pair in (
        "synthetic_then_real(until=0.95) + sft_stage",
        "sft_stage + synthetic_then_real(until=0.95)",
    ):
        with pytest.raises(BadInput, match="data.source two values at the same time"):
            tiny(f"spark + {pair}")


def test_the_curated_stage_has_the_runs_own_kind_of_scenes(tiny, cache):
    """Not more objects than the run knows: else its effect would be that of another world."""
    last = phases(tiny("spark + sft_stage"))[-1].run.data.source
    assert (last.split, last.max_objects, last.count, last.mislabelled) == ("curated", 2, 512, 0.0)
    dirty = tiny("spark + sft_stage", "data.source.mislabelled=0.5")
    assert phases(dirty)[-1].run.data.source == last, "curated captions are true"
    assert not SFTStage(count=16).witness(
        trained(tiny, cache, "spark + sft_stage(start=0.6, count=17)")
    )


# ---- the filter


def test_the_filter_removes_mostly_planted_pairs(tiny, cache):
    run = tiny(
        "spark + caption_filter(drop=0.2)", "data.source.mislabelled=0.2", "data.source.count=300"
    )
    source = Feed(run, 0, cache).source_at(0)
    before, after = source.inner.planted(np.arange(300)), source.planted(np.arange(len(source)))
    gone = before.sum() - after.sum()
    assert len(source) == 240 and before.mean() == pytest.approx(0.2, abs=0.08)
    assert gone >= 0.9 * min(before.sum(), 60), "nine of ten that could go went"


def test_the_filter_keeps_the_source_and_what_judges_is_unfiltered(tiny):
    run = tiny("spark + caption_filter", "data.source.mislabelled=0.3")
    source = run.data.source
    assert isinstance(source, Filtered) and (
        source.mislabelled,
        source.count,
        source.max_objects,
    ) == (0.3, 64, 2)
    held = _source(run, "validation", 40)
    assert len(held) == 40 and held.fingerprint() == _source(tiny(), "validation", 40).fingerprint()
    assert held.prompts(Chooser(), np.arange(40)) == _source(tiny(), "validation", 40).prompts(
        Chooser(), np.arange(40)
    )
    for setting, words in (
        ("data.source.count=4", "none or all"),
        ("data.source=filtered_world", "filtered already"),
    ):
        with pytest.raises(BadInput, match=words):
            parse("spark + caption_filter", CATALOG, [setting])


def test_the_filters_witness_wants_fewer_planted_pairs(tiny, cache):
    """A filter that drops at random is no caption filter."""

    class Feeds:
        def __init__(self, source):
            self.source_at = lambda position: source

    class Built:
        def __init__(self, source):
            self.feed, self.phases = Feeds(source), phases(run)

    run = tiny("spark + caption_filter", "data.source.mislabelled=0.3", "data.source.count=200")
    source = Feed(run, 0, cache).source_at(0)
    lever, honest = (
        CATALOG.levers["caption_filter"](),
        np.flatnonzero(~source.inner.planted(np.arange(200))),
    )
    assert lever.witness(Built(source)) and not lever.witness(Built(source.inner))
    backwards = type(source)(source.inner, np.setdiff1d(np.arange(200), honest[:20]))
    assert not lever.witness(Built(backwards))


# ---- the ladder


def test_the_ladder_climbs_in_size_and_shift(tiny, cache):
    run = tiny("spark + resolution_ladder + shifted_time")
    assert [
        (p.start, p.end, p.run.data.size, p.run.tokens, p.run.flow.time.k) for p in phases(run)
    ] == [
        (0, 24, 16, 4, 1.5),
        (24, 48, 32, 16, 3.0),
    ]
    feed = Feed(run, 0, cache)
    for position, side in ((0, 4), (40, 8)):
        batch, draw = feed.at(position)
        assert batch.x0.shape[-2:] == draw.eps.shape[-2:] == (side, side)
    assert _source(run, "validation", 8).size == 32, "judged at the run's own size"
    assert (
        phases(tiny("spark + resolution_ladder(shift=kept) + uniform_time"))[0].run.data.size == 16
    )


def test_a_shift_is_never_scaled_past_none():
    assert [LogitNormal(shift=k, scale=0.5).k for k in (3.0, 1.5, 1.0, 0.8)] == [1.5, 1.0, 1.0, 0.8]


def test_routing_starts_with_the_large_stage(tiny, cache):
    feed = Feed(tiny("spark + resolution_ladder + tread @ (0.5, 1)"), 0, cache)
    assert feed.at(0)[1].keep is None and feed.at(24)[1].keep.shape == (8, 8)


def test_the_ladder_costs_the_average_of_its_stages(tiny):
    run, lever = tiny(), ResolutionLadder(until=0.25)
    early, whole = lever.cost(run).flops, ResolutionLadder(until=0.75).cost(run).flops
    assert 0.5 < whole < early < 1
    assert lever.cost(lever.edit(run)) == lever.cost(run), (
        "asked before or after, it costs the same"
    )


@pytest.mark.parametrize(
    "text, settings, words",
    [
        ("spark + resolution_ladder(start_size=20)", (), "not a multiple of 8"),
        ("spark + resolution_ladder(start_size=32)", (), "nothing to climb"),
        (
            "spark + resolution_ladder(start_size=4)",
            ("encode.codec=pixels", "flow.predict=x"),
            "drawn at 8 or more",
        ),
        ("spark + resolution_ladder + edm_noise", (), "shift=kept"),
        ("spark + edm_noise + resolution_ladder", (), "shift=kept"),
    ],
)
def test_the_ladder_refuses(text, settings, words, tiny):
    with pytest.raises(BadInput, match=words):
        tiny(text, *settings)


def test_a_time_that_is_replaced_early_has_no_shift_to_scale(tiny):
    staged = during(tiny(), 0.0, 0.2, "flow.time", LogitNormal(shift=2.0))
    with pytest.raises(BadInput, match="flow.time two values at the same time"):
        apply(staged, (ResolutionLadder(),))
