"""Teachers in training: read while a term is on and not a step longer; projectors resume; nothing
frozen is saved."""

import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.networks.rows import RowCache
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble, build
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import train
from fulcrum.training.session import Order, perform
from tests.conftest import TINY

PIXELS = ("encode.codec=pixels", "model.patch=8", "flow.predict=x")


def assembled(run, cache, **system):
    return assemble(run, 0, System(**system), Feed(run, 0, cache))


def steps(n):
    left = [n]

    def stop():
        left[0] -= 1
        return left[0] < 0

    return stop


@pytest.mark.parametrize("microbatch", [None, 3])
def test_rows_are_read_until_the_end_of_the_term_and_no_longer(
    tiny, cache, microbatch, monkeypatch
):
    """Off at 5/12 of six steps: three steps are on, the bound in the middle of the third is the
    batch's, not the rows'."""
    built, reads, parts = (
        assembled(tiny("spark + repa(until=0.42)"), cache, microbatch=microbatch),
        [],
        [],
    )
    stored = RowCache.stored
    built.feed.at(0)
    tokens = built.feed.ready[0].teachers["world"]

    def read(self, ids, pinned=False):
        if self is tokens:
            reads.append(len(ids))
        return stored(self, ids, pinned)

    monkeypatch.setattr(RowCache, "stored", read)
    train(built, State(), [lambda look: parts.append(sorted(look.parts))], lambda: False)
    assert sum(reads) == 3 * 8
    assert parts == [["alignment", "flow_matching"]] * 3 + [["flow_matching"]] * 3


def test_no_teacher_is_built_where_no_term_asks(tiny, cache, monkeypatch):
    from fulcrum.networks.fillers import WorldTeacher

    def refuse(self, ctx):
        raise AssertionError("built")

    monkeypatch.setattr(WorldTeacher, "build", refuse)
    late = Feed(tiny("spark + repa @ (0.5, 1)"), 0, cache)
    assert (
        late.at(0)[0].teacher == {}
        and Feed(tiny("spark + repa(until=0.5)"), 0, cache).at(24)[0].teacher == {}
    )
    with pytest.raises(AssertionError, match="built"):
        late.at(24)


def test_tokens_come_on_the_models_grid_and_belong_to_the_pictures(tiny, cache):
    from fulcrum.networks.network_hash import to_unit
    from fulcrum.networks.teacher import load_teacher, to_grid

    feed = Feed(tiny("spark + repa"), 0, cache)
    batch, _ = feed.at(8)
    pictures = feed.ready[0].encoder.source.read(batch.ids.numpy()).images
    expected = to_grid(load_teacher().tokens(to_unit(torch.from_numpy(pictures))), 4)
    assert (
        batch.teacher["world"].shape == (8, 16, 128)
        and batch.teacher["world"].dtype == torch.float32
    )
    assert torch.allclose(batch.teacher["world"], expected, atol=5e-3)  # stored in 16 bits


def test_the_rest_of_the_batch_is_the_baselines(tiny, cache):
    one, two = (Feed(tiny(text), 0, cache).at(8) for text in ("spark", "spark + repa"))
    assert (
        torch.equal(one[0].x0, two[0].x0)
        and torch.equal(one[1].eps, two[1].eps)
        and one[0].teacher == {}
    )


def test_an_unknown_teacher_is_named(tiny, cache):
    from fulcrum.spec.edit import put
    from fulcrum.spec.errors import BadInput
    from fulcrum.training.loss.fillers import Alignment

    with pytest.raises(BadInput, match="teacher 'dino'"):
        Feed(put(tiny("spark + repa"), "terms.alignment", Alignment(teacher="dino")), 0, cache).at(
            0
        )


@pytest.mark.parametrize(
    "text",
    ["spark + repa + tread", "spark + irepa + tread", "spark + repa(schedule=cosine) + muon"],
)
def test_trains_and_the_projector_learns(tiny, cache, text):
    built = assembled(tiny(text), cache)
    before = {
        name: p.detach().clone() for name, p in built.step.terms["alignment"].named_parameters()
    }
    seen = []
    train(built, State(), [lambda look: seen.append(float(look.parts["alignment"]))], steps(3))
    assert len(seen) == 3 and all(0 < loss < 2 for loss in seen)
    assert all(
        not torch.equal(before[name], p)
        for name, p in built.step.terms["alignment"].named_parameters()
    )
    if "tread" in text:
        # the tapped block is routed
        assert built.step.look(*built.feed.at(0)).taps[1].index.shape == (8, 8)


def test_the_backbone_feels_the_teacher_up_to_the_tap_only(tiny, cache):
    built = assembled(tiny("spark + repa"), cache)
    batch, draw = built.feed.at(0)
    built.step(batch, draw, {"alignment": 0.5}).total.backward()
    felt = [
        any(p.grad is not None for p in block.parameters()) for block in built.step.backbone.blocks
    ]
    assert felt == [True, True, False, False]


def test_a_run_through_the_end_of_alignment_resumes_bit_for_bit(tiny, tmp_path, lose):
    run = tiny("spark + repa(until=0.6) + muon")
    order = Order(run, 0, "alignment", tmp_path / "a", System(), quiet=True)
    whole = perform(order, print)
    order = order._replace(out=tmp_path / "b")
    lose(order, 24)
    assert perform(order, print)["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.parametrize(
    ("stage", "lost"), [("(0, 0.5)", 32), ("(0.5, 1)", 16), ("(0.34, 0.67)", 24)]
)
@pytest.mark.parametrize("lever", ["repa", "irepa"])
def test_a_run_with_alignment_in_a_stage_resumes_bit_for_bit(tmp_path, lose, lever, stage, lost):
    """Its projector is there from the beginning to the end, and its teacher in the stage alone."""
    read = parse(f"spark + {lever} @ {stage}", CATALOG, TINY)
    order = Order(
        read.run, 0, "alignment", tmp_path / "a", System(), quiet=True, levers=read.levers
    )
    parts = []
    whole = perform(order, print, lambda *_: [lambda look: parts.append("alignment" in look.parts)])
    first, last = (round(float(end) * 6) for end in stage.strip("()").split(","))
    assert parts == [first <= step < last for step in range(6)]
    order = order._replace(out=tmp_path / "b")
    lose(order, lost)
    assert perform(order, print)["weights_sha256"] == whole["weights_sha256"]


def test_what_is_saved(tiny):
    """The projector is training state and no part of the model; a frozen network is in neither."""
    plain = build(tiny("spark", *PIXELS))
    for text, extra in (
        ("repa", "terms.alignment.projector."),
        ("irepa", "terms.alignment.projector."),
        ("perceptual_features", None),
        ("lpips", None),
    ):
        step = build(tiny(f"spark + {text}", *PIXELS))
        added = set(step.state_dict()) - set(plain.state_dict())
        assert all(name.startswith(extra) for name in added) if extra else not added
        assert bool(extra) == bool(added) and set(step.backbone.state_dict()) == set(
            plain.backbone.state_dict()
        )


@pytest.mark.parametrize("name", ["perceptual_features", "lpips"])
def test_perceptual_terms_train(tiny, cache, name):
    built = assembled(tiny(f"spark + {name}", *PIXELS), cache)
    seen = []
    train(built, State(), [lambda look: seen.append(float(look.parts[name]))], steps(3))
    assert len(seen) == 3 and all(loss > 0 for loss in seen)
    assert CATALOG.levers[name]().witness(built)
    assert not CATALOG.levers[name]().witness(assembled(tiny("spark", *PIXELS), cache))


def test_witnesses_tell_the_two_projectors_apart(tiny, cache):
    runs = {name: assembled(tiny(f"spark + {name}"), cache) for name in ("repa", "irepa")}
    for name in runs:
        assert [CATALOG.levers[name]().witness(built) for built in runs.values()] == [
            name == other for other in runs
        ]


def test_costs_are_small_and_end_with_the_term(tiny):
    whole, half = (parse(text, CATALOG) for text in ("pocket + repa", "pocket + repa(until=0.5)"))
    one, other = (phrase.levers[0].cost(phrase.base) for phrase in (whole, half))
    assert 1.0 < one.flops < 1.08 and (one.flops - 1) == pytest.approx(2 * (other.flops - 1))
    assert one.parameters == other.parameters > 1


def test_every_size_has_its_own_grid(tiny, cache):
    from fulcrum.spec.edit import during

    built = assembled(during(tiny("spark + irepa"), 0.0, 0.5, "data.size", 16), cache)
    assert [built.feed.at(position)[0].teacher["world"].shape[1] for position in (0, 24)] == [4, 16]
    assert train(built, State(), [], lambda: False).images == 48
