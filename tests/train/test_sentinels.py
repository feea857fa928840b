"""Sentinels: what goes wrong is seen, put on record and dealt with as asked; a run that goes well
does not notice them."""

import json
import math
import shutil

import pytest
import torch

from fulcrum.files.sealed import read_records
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.run import System
from fulcrum.training import build, checkpoint, loop
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import StepReport
from fulcrum.training.observers import (
    STEPS,
    WARM,
    DtypeDrift,
    InARow,
    LossSpike,
    Sentinels,
    collapsed,
    nothing_learned,
    variety,
)
from fulcrum.training.run_folder import ROLLED_BACK, RunEvents, RunFolder
from fulcrum.training.session import Order, perform

BATCH, IMAGES, BAD = 8, 480, 400  # the step that begins at BAD is made to go wrong
REAL = Feed.at


@pytest.fixture
def run(tiny):
    return tiny("spark", f"budget.images={IMAGES}", "optim.lr=1e-3")


@pytest.fixture
def order(run, tmp_path, cache):
    def make(policy="tell", name="runs", spec=run, **system):
        out = tmp_path / name
        if (cache / "sentinels").exists() and not out.exists():
            shutil.copytree(cache / "sentinels", out / "cache")
        return Order(
            spec, 0, "spark", out, System(on_alarm=policy, **system), quiet=True, most_skipped=0.5
        )

    yield make
    if not (cache / "sentinels").exists() and (tmp_path / "runs" / "cache").exists():
        shutil.copytree(tmp_path / "runs" / "cache", cache / "sentinels")


@pytest.fixture
def wrong(monkeypatch):
    """Make the pictures of some steps what `change` makes of them."""

    def make(change, *positions):
        def at(self, position, rows=None):
            batch, draw = REAL(self, position, rows)
            return (
                (batch._replace(x0=change(batch.x0)), draw)
                if position in positions
                else (batch, draw)
            )

        monkeypatch.setattr(Feed, "at", at)

    return make


def loud(x0):
    return x0 * 30


def no_number(x0):
    return x0 * math.nan


def quiet(text):
    pass


def events(order, result=None):
    path = next(order.out.glob("*/about.json")).parent / "events.jsonl"
    return [line for line in read_records(path).values if line["event"] != "session"]


def skipping(run):
    return run.model_copy(update={"optim": run.optim.model_copy(update={"not_finite": "skip"})})


def test_a_run_that_goes_well_hears_nothing_and_is_the_same_under_every_policy(order):
    results = [perform(order(policy, policy), quiet) for policy in ("tell", "stop")]
    assert (
        len({result["weights_sha256"] for result in results})
        == len({result["key"] for result in results})
        == 1
    )
    assert not any("alarms" in result for result in results)
    assert not events(order("stop", "stop"))


@pytest.mark.parametrize("former", ["skip", "roll_back"])
def test_policies_of_earlier_releases_stop(former):
    assert System(on_alarm=former).on_alarm == "stop"


def test_a_run_that_an_earlier_release_rolled_back_is_refused(order, lose):
    lose(order("tell"), BAD)
    folder = next(order().out.glob("*/about.json")).parent
    facts = {"sentinel": "loss spike", "why": "", "to": 0, "from": 0, "until": 8}
    RunEvents(folder, quiet).write(ROLLED_BACK, 8, facts)
    with pytest.raises(BadInput, match="rolled back by an earlier release"):
        perform(order("tell"), quiet)


def test_a_spike_is_told_once_and_stands_in_the_result(order, wrong):
    wrong(loud, BAD)
    said = []
    result = perform(order(), said.append)
    assert result["alarms"] == {"loss spike": 1} and result["skipped"] == 0
    assert sum("loss spike at 408 images" in line for line in said) == 1
    (event,) = events(order())
    assert (event["sentinel"], event["images"], event["done"]) == (
        "loss spike",
        BAD + BATCH,
        "tell",
    ) and "above" in event["why"]


def test_a_spike_stops_a_run_that_is_to_be_stopped(order, wrong):
    wrong(loud, BAD)
    with pytest.raises(TrainingFailed, match="loss spike at 408 images: the loss is"):
        perform(order("stop"), quiet)
    assert [event["done"] for event in events(order())] == ["stop"]
    assert checkpoint.listing(next(order().out.glob("*/checkpoints")))


def test_dead_gradients_are_seen(order, monkeypatch):
    real = loop.clip_gradients
    monkeypatch.setattr(loop, "clip_gradients", lambda apart, most: real(apart, most) * 0)
    with pytest.raises(TrainingFailed, match=f"dead gradients at {STEPS * BATCH} images"):
        perform(order("stop"), quiet)
    dead = InARow(STEPS)
    assert [dead.take(nothing) for nothing in [True] * 19 + [False] + [True] * 25].index(True) == 39


def test_updates_that_round_to_nothing_are_seen(order, tiny, monkeypatch):
    monkeypatch.setattr(loop, "WATCH_EVERY", 4)
    small = tiny("spark + bf16_storage", "budget.images=96", "optim.lr=1e-7")
    result = perform(order(spec=small), quiet)
    assert result["alarms"] == {"stalled updates": 1}
    at_random = tiny(
        "spark + bf16_storage + stochastic_rounding", "budget.images=96", "optim.lr=1e-7"
    )
    assert "alarms" not in perform(order("tell", "random", at_random), quiet)


@pytest.fixture
def built(tiny, cache):
    def make(phrase, *settings):
        spec = tiny(phrase, *settings)
        return build.assemble(spec, 0, System(), Feed(spec, 0, cache))

    return make


def test_dtypes_that_drift_are_seen(built):
    phrase = "spark + muon + ema + bf16_optimizer_state"
    whole = built(phrase, "budget.images=480")
    assert DtypeDrift(whole).found() == ""
    drift, rule = DtypeDrift(whole), whole.optimizer.rules[0]
    name = next(iter(rule.slots["momentum"]))
    rule.slots["momentum"][name] = rule.slots["momentum"][name].float()
    assert (
        drift.found() == f"the optimizer momentum/{name} is float32, the description says bfloat16"
    )
    assert "the description says bfloat16" in DtypeDrift(whole).found()  # also when it began so
    whole = built(phrase, "budget.images=480")
    drift, mean = DtypeDrift(whole), whole.average.mean
    mean[next(iter(mean))] = mean[next(iter(mean))].half()
    assert "the average" in drift.found() and "is float16" in drift.found()
    whole = built(phrase, "budget.images=480")
    drift = DtypeDrift(whole)
    whole.step.backbone.half()
    assert "the weight backbone." in drift.found()


def test_weights_that_their_storage_cannot_hold_are_seen(built):
    whole = built("spark + bf16_storage")
    drift, weights = DtypeDrift(whole), list(whole.step.backbone.parameters())
    assert not any(drift.found() for _ in weights)
    with torch.no_grad():
        weights[3].add_(1e-4)
    assert sum("cannot hold" in drift.found() for _ in weights) == 1


def test_a_drift_stops_before_the_first_step(order, monkeypatch):
    monkeypatch.setattr(
        DtypeDrift, "found", lambda self: "the weight w is float16, the description says float32"
    )
    with pytest.raises(TrainingFailed, match="dtype drift at 0 images"):
        perform(order("stop"), quiet)


def test_pictures_that_are_nearly_the_same_are_seen():
    far = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8)
    near = far[:1].repeat(8, 1, 1, 1)
    near[:, 0, 0, 0] = torch.arange(8, dtype=torch.uint8)
    prompts = [f"picture {number}" for number in range(8)]
    black_and_white = torch.stack([torch.zeros(3, 4, 4), torch.full((3, 4, 4), 255.0)]).byte()
    assert variety(black_and_white) == pytest.approx(1.0)
    assert not collapsed(far, prompts) and "8 pictures of different prompts" in collapsed(
        near, prompts
    )
    assert not collapsed(near, ["the same"] * 8) and not collapsed(near[:1], prompts[:1])


def test_the_loss_of_a_run_that_learned_nothing_says_so(order, tiny):
    still = tiny("spark", f"budget.images={IMAGES}", "optim.lr=1e-12")
    assert "nothing was learned" in perform(order(spec=still), quiet)["nothing_learned"]
    falling = [1.0 - 0.005 * step for step in range(100)]
    assert (
        nothing_learned(falling) == ""
        and nothing_learned(falling[::-1])
        and nothing_learned([1.0] * 100)
    )
    assert nothing_learned([1.0] * 40) == ""  # too few to tell


def test_the_limit_of_a_loss():
    spike = LossSpike()
    assert (
        not any(spike.take(1.0 + 0.1 * (step % 2), "a") for step in range(WARM - 1))
        and spike.limit() == math.inf
    )
    assert not spike.take(1.0, "a") and 2.0 <= spike.limit() < 2.2
    assert spike.take(9.0, "a") and not spike.take(9.0, "a") and not spike.take(math.nan, "a")
    before = spike.mean
    # a spike leaves the mean alone
    assert not spike.take(1.0, "a") and spike.mean == pytest.approx(before, rel=0.01)
    assert not spike.take(9.0, "b") and spike.limit() == math.inf  # another loss
    spike = LossSpike()
    for step in range(WARM):
        spike.take(-0.01 * (1 + step % 3), "a")  # a loss below nothing has a limit as well
    assert -0.02 < spike.limit() < 0.1 and spike.take(1.0, "a")
    assert [spike.take(1.0, "a") for _ in range(60)].count(True) == 0  # a new level is no spike


def test_a_loss_that_is_made_of_other_terms_is_held_to_no_limit(built, tmp_path, monkeypatch):
    whole = built("spark")._replace(system=System(on_alarm="stop"))
    watch = Sentinels(whole, RunFolder(tmp_path), State(), RunEvents(tmp_path, quiet))

    def report(number, loss):
        state = State(images=whole.run.budget.batch)
        return StepReport(whole, state, loss, {"flow_matching": loss}, 1.0, 1.0)

    for number in range(1, WARM + 1):
        watch(report(number, 1.0))
    with monkeypatch.context() as other:
        other.setattr(watch, "made_of", lambda images: "others")
        watch(report(WARM + 1, 9.0))  # made of other terms: no spike
    for number in range(1, WARM + 1):
        watch(report(number, 1.0))
    with pytest.raises(TrainingFailed, match="loss spike"):
        watch(report(WARM + 1, 9.0))


def test_events_are_those_of_the_run_as_it_stands(order, wrong, lose):
    """An alarm of steps that are taken again is not there twice."""
    wrong(loud, BAD)
    lose(order("tell", "lost"), BAD + 2 * BATCH)
    result = perform(order("tell", "lost"), quiet)
    assert result["alarms"] == {"loss spike": 1}
    lines = (order("tell", "lost").out / result["key"] / "events.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["event"] for line in lines) == ["alarm", "session", "session"]
