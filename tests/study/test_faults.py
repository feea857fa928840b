"""The published harness's faults, re-expressed as plans: each is refused or labelled."""

import shutil
from typing import ClassVar

import pytest

from fulcrum.levers.base import Card, Lever
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.studies import proof as fingerprint
from fulcrum.studies.arms import prove
from fulcrum.studies.cell import lay_out
from fulcrum.studies.proof import fingerprints, fitting
from fulcrum.studies.result import remarks
from fulcrum.training.feed import Feed
from fulcrum.training.optim.fillers import MuonRule
from fulcrum.training.session import Order, perform
from tests.study.small import SMALL, plan


class LoudMuon(Lever):
    """Muon as the published arm had it: Adam's eps moves too."""

    name: ClassVar[str] = "loud_muon"
    touches: ClassVar[tuple[str, ...]] = ("optim.rule",)
    card: ClassVar[Card] = Card(says="Muon, and another eps")

    def edit(self, run):
        return put(run, "optim.rule", MuonRule(eps=1e-8))

    def witness(self, built):
        return True


class Unread(Lever):
    """A precision that nobody reads: one process reduces nothing."""

    name: ClassVar[str] = "unread"
    touches: ClassVar[tuple[str, ...]] = ("precision.reduce",)
    card: ClassVar[Card] = Card(says="gradients reduced in bf16")

    def edit(self, run):
        return put(run, "precision.reduce", "bf16")

    def witness(self, built):
        return built.run.precision.reduce == "bf16"


OWN = CATALOG._replace(levers={**CATALOG.levers, "loud_muon": LoudMuon, "unread": Unread})


def said(asked, catalogue=CATALOG):
    return " ".join(one.text for one in remarks(asked, prove(asked, catalogue)))


def test_A4_a_seed_that_does_not_reach_the_data_order_is_refused(cache, monkeypatch):
    arms = prove(plan(arms=("bf16_storage",)), CATALOG)
    fingerprint._independent(arms[0].run, (0, 1), cache)  # our own seeds do
    monkeypatch.setattr(fingerprint, "Feed", lambda run, seed, cache, say: Feed(run, 0, cache))
    with pytest.raises(BadInput, match="same order of the data and the same noise"):
        fingerprints(arms, (0, 1), cache)


def test_A5_no_arm_can_write_where_another_has_written(tmp_path):
    layout = lay_out(plan(arms=("muon", "bf16_storage", "short_captions")), CATALOG, {}, tmp_path)
    # a folder each, whatever the plan inherits
    assert len({cell.key for cell in layout.cells}) == 8
    base, muon = layout.cells[:2]
    short = put(base.run, "budget.images", 8)
    perform(Order(short, base.seed, base.phrase, tmp_path, System(), quiet=True), lambda text: None)
    written = next(path for path in tmp_path.iterdir() if (path / "about.json").exists())
    shutil.copytree(written, tmp_path / muon.key)
    with pytest.raises(BadInput, match="holds another run"):
        perform(
            Order(muon.run, muon.seed, muon.phrase, tmp_path, System(), quiet=True),
            lambda text: None,
        )


@pytest.mark.parametrize(
    "arm", ["end_to_end_codec + repa", "repa + ema(every=2)", "tread + short_captions"]
)
def test_A7_two_changes_in_one_arm_are_labelled_compound(arm):
    asked = plan(arms=(arm,))
    assert prove(asked, CATALOG)[1].compound and f"{arm} is a compound of 2 levers" in said(asked)


def test_A8_an_optimizer_that_also_moves_eps_is_labelled():
    asked = plan(arms=("loud_muon", "muon"))
    loud, own = prove(asked, OWN)[1:]
    assert loud.compound and "also moves optim.rule.eps" in said(asked, OWN)
    assert not own.compound and not own.labels  # our own Muon keeps Adam's settings
    # stride and channels say what a codec is
    assert not prove(plan(arms=("pixels",)), OWN)[1].compound


def test_A9_short_captions_judged_by_long_prompts_are_labelled():
    assert "trained on captions(style=short) and judged by prompts of captions(style=long)" in said(
        plan(arms=("short_captions",))
    )
    matched = said(plan(arms=("short_captions(prompts='matched')",)))
    assert "judged by prompts of" not in matched and "evaluated with other prompts" in matched
    assert prove(plan(arms=("short_captions + caption_filter",)), CATALOG)[1].compound


def test_A10_an_arm_whose_key_is_read_by_nobody_is_refused(cache):
    with pytest.raises(BadInput, match="no slot is called"):
        prove(plan(settings=(*SMALL, "precision.low_precision_weights=bf16")), CATALOG)
    with pytest.raises(BadInput, match="changes nothing"):
        prove(plan(settings=(*SMALL, "precision.storage=bf16"), arms=("bf16_storage",)), CATALOG)
    arms = prove(plan(arms=("unread",)), OWN)  # the run differs, its training does not
    with pytest.raises(BadInput, match="after 3 steps its weights are the baseline's, bit for bit"):
        fingerprints(arms, (0, 1), cache)


def test_A11_an_arm_that_encodes_in_every_step_is_labelled():
    label = "encodes pictures in every step where the other side reads cached latents"
    assert label in said(plan(arms=("latent_alignment",)))
    # text and latents are cached for all
    assert "encodes pictures" not in said(plan(arms=("muon", "repa")))


def test_A12_routes_at_different_budgets_are_labelled():
    asked = plan(arms=("tread", "sprint"))
    assert "tread and sprint differ in model.route and in its 'drop' (0.5 and 0.75)" in said(asked)
    assert "in its 'drop'" not in said(plan(arms=("tread(drop=0.75)", "sprint")))


# ---- the fingerprint itself


def test_arms_are_told_apart_by_what_their_levers_affect(cache):
    asked = plan(arms=("muon", "ema", "tread @ (0.5, 1)", "short_captions"), images=96)
    prints = {one.arm: one for one in fingerprints(prove(asked, CATALOG), (0, 1), cache)}
    assert {name: one.by for name, one in prints.items()} == {
        "muon": "weights",
        "ema": "averaged weights",
        "tread @ (0.5, 1)": "weights",
        "short_captions": "weights",
    }
    assert all(one.baseline != one.found for one in prints.values())


def test_levers_that_only_draw_are_told_apart_by_what_they_draw(cache):
    asked = plan(
        baseline="spark + sprint",
        arms=("path_drop_guidance",),
        guidance="per_arm",
        settings=(*SMALL, "model.depth=5"),
    )
    (one,) = fingerprints(prove(asked, CATALOG), (0, 1), cache)
    assert one.by == "samples"


def test_an_arm_of_another_shape_cannot_begin_from_a_trunk(tmp_path):
    asked = plan(arms=("resolution_condition",), trunk="spark", trunk_images=16)
    layout = lay_out(asked, CATALOG, {}, tmp_path)
    with pytest.raises(BadInput, match="cannot begin from the trunk"):
        fitting(layout.arms, layout.trunk_runs)
    layout = lay_out(
        plan(arms=("muon", "tread"), trunk="spark", trunk_images=16), CATALOG, {}, tmp_path
    )
    fitting(layout.arms, layout.trunk_runs)
