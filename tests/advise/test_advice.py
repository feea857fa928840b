"""fulcrum advise: the order, what is said to be known of each lever, the plan that follows, and the
test of it all."""

import ast
import json
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from fulcrum.advice import advice as next_plan_file
from fulcrum.advice.advice import advise, family, next_plan, pairs_for, text, unsettled
from fulcrum.advice.back_test import back_test, back_test_text
from fulcrum.advice.decisions import rows as measured_rows
from fulcrum.advice.effect_pool import (
    differences,
    known_effects,
    scope_of_base,
    scope_of_phrase,
    sign_votes,
)
from fulcrum.cli import main
from fulcrum.files.sealed import sha256_text
from fulcrum.judge.schema import StudyResult
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import SCIENCE
from fulcrum.studies.cell import lay_out
from fulcrum.studies.plan_file import load
from tests.advise.fake_measured import HERE, row, rows, table

ROOT = Path(__file__).parents[2]
FAKE = runpy.run_path(str(ROOT / "tests/report/evidence/fake_evidence.py"))


@pytest.fixture
def measured(tmp_path):
    return table(tmp_path)


def advice_on(phrase, measured, tmp_path, **options):
    return advise(phrase, CATALOG, tmp_path / "runs", measured=measured, **options)


def by_arm(advice):
    return {one.arm: one for one in advice.levers}


def test_what_is_known_of_a_lever_is_said_in_four_words(measured, tmp_path):
    known = {
        name: one.known for name, one in by_arm(advice_on("spark", measured, tmp_path)).items()
    }
    assert known["muon"] == known["repa(until=0.5)"] == "measured here"
    assert known["uniform_time"] == "measured elsewhere", "on pocket alone"
    assert known["contrastive_flow"] == "claimed only" and known["min_snr"] == "nobody knows"


def test_nothing_is_known_here_that_was_measured_beside_another_lever(measured, tmp_path):
    levers = by_arm(advice_on("spark + ema", measured, tmp_path))
    assert levers["muon"].known == "measured elsewhere" and "ema" not in levers
    assert levers["muon"].high - levers["muon"].low > 0.05, (
        "the interval is as wide as places differ"
    )


def test_the_order_is_gain_for_the_time_and_harm_comes_last(measured, tmp_path):
    advice = advice_on("spark", measured, tmp_path)
    arms = [one.arm for one in advice.levers]
    assert arms[0] == "aligned_codec", "half of Muon's gain, for none of its time"
    assert arms.index("muon") < arms.index("repa") and arms[-1] == "short_captions"
    muon = by_arm(advice)["muon"]
    assert muon.time == 1.29 and muon.per_tenth == pytest.approx(muon.expected / 2.9)
    assert muon.expected == pytest.approx(0.12, abs=0.01) and muon.low > 0.1, (
        "six measured pairs outweigh all else"
    )
    gains = [one.expected for one in advice.levers if one.outcome == "hurt"]
    assert gains == sorted(gains, reverse=True) and all(gain <= 0.0 for gain in gains)


def test_what_makes_no_difference_is_not_said_to_help(tmp_path):
    """Ties stood under "expected to help" when their mean was a little above zero."""
    made = [
        *rows(),
        row("ema", 0.004, 0.009, "tie", 1.1),
        row("bf16_compute", 0.006, 0.008, "inconclusive", 0.9),
    ]
    advice = advice_on("spark", table(tmp_path, made), tmp_path)
    levers = by_arm(advice)
    assert (
        levers["ema"].expected > 0.0
        and levers["ema"].outcome == levers["bf16_compute"].outcome == "no difference"
    )
    assert levers["x_prediction"].outcome == "unclear", (
        "-0.013 is within 0.02, and 0.022 beside it is not"
    )
    assert levers["bf16_storage"].outcome == "hurt" and levers["repa"].outcome == "help"
    helps, rest = text(advice).split("make no difference that matters")
    assert (
        "ema" not in helps
        and "muon" in helps
        and "bf16_compute" in rest.split("expected to hurt")[0]
    )
    assert [one.arm for one in advice.levers if one.outcome == "no difference"][
        0
    ] == "bf16_compute", "the fastest first"
    assert advice.plain()["levers"][0]["outcome"] == "help"


def test_an_effect_that_is_too_small_to_matter_is_no_help_where_it_was_not_measured(
    measured, tmp_path
):
    """On a large recipe +0.003 [-0.1, +0.1], carried over from a tie on a small one, stood under
    "expected to help"."""
    advice = advice_on("prx_256", measured, tmp_path)
    ema = by_arm(advice)["ema"]
    assert (
        abs(ema.expected) < 0.02 < ema.high
        and ema.known == "measured elsewhere"
        and ema.outcome == "unclear"
    )
    assert all(
        abs(one.expected) >= 0.02 for one in advice.levers if one.outcome in ("help", "hurt")
    )
    words = text(advice)
    helps, unclear = words.split("too small to call")
    assert "ema" not in helps and "ema" in unclear.split("expected to hurt")[0]
    promised = [one.promise for one in advice.levers if one.outcome == "unclear"]
    assert len(promised) > 1 and promised == sorted(promised, reverse=True)
    small = [*rows(), row("logit_normal_time", 0.012, 0.004, "better", 1.0)]
    decided = by_arm(advice_on("spark", table(tmp_path, small), tmp_path))["logit_normal_time"]
    assert decided.expected < 0.02 and decided.outcome == "no difference", (
        "decided, and within what matters"
    )


def test_advice_is_short_unless_all_is_asked_for_and_ends_with_what_to_type(measured, tmp_path):
    advice = advice_on("spark", measured, tmp_path)
    short, whole = text(advice), text(advice, whole=True)
    assert "\n     and 1 more: repa\n" in short, "a lever's other settings are named, not told"
    assert advice.refused and all(why in whole and why not in short for _, why in advice.refused)
    assert (
        "fulcrum train 'spark + aligned_codec'" in short
        and "fulcrum advise spark --plan next.toml" in short
    )
    assert short.endswith("fulcrum advise spark --all") and "--all" not in whole
    elsewhere = text(advice_on("prx_256", measured, tmp_path))
    assert "step x 1.29 there" in elsewhere and "step x 1.29 there" not in short, (
        "a time of elsewhere is told as such"
    )


def test_a_time_counts_where_such_steps_were_timed(measured, tmp_path):
    """Step times of a small run on two cores stood as the cost of a large one."""
    here, large, beside = (
        by_arm(advice_on(phrase, measured, tmp_path))
        for phrase in ("spark", "prx_256", "spark + shifted_time")
    )
    assert here["muon"].time == 1.29 and large["muon"].time is None and beside["muon"].time is None
    assert (
        large["muon"].step
        == CATALOG.levers["muon"]().cost(CATALOG.recipes["prx_256"]()).flops
        != here["muon"].flops
    )
    assert here["repa(until=0.5)"].time == 1.08 and here["repa"].time == 1.17, (
        "each arm has its own"
    )
    longer = by_arm(advice_on("spark", measured, tmp_path, settings=("budget.images=96000",)))
    assert longer["muon"].known == "measured elsewhere" and longer["muon"].time == 1.29, (
        "more pictures, the same step"
    )
    assert "nobody timed this run's levers" in text(advice_on("prx_256", measured, tmp_path))


def test_the_text_ends_with_how_to_read_it(measured, tmp_path):
    words = text(advice_on("spark", measured, tmp_path)).split("how to read it")[1]
    assert "smallest change of interest" in words and "free: " in words and "science" not in words
    old = table(tmp_path, [*rows(), row("min_snr", 0.1, 0.02, "better", science=1, images=None)])
    words = text(advice_on("spark", old, tmp_path))
    assert (
        f"another place: science 1, now {SCIENCE}" in words
        and "science 1" in words.split("how to read it")[1]
    )
    assert "carried over" not in words and "carried over from pocket, spark" in text(
        advice_on("prx_256", old, tmp_path)
    )


def test_an_old_row_that_knows_little_of_its_place_is_not_the_nearest():
    """Of another recipe's old row neither tokens nor budget are known: it counted as nearer than
    the row of today."""
    here = scope_of_phrase(parse("prx_256", CATALOG))
    today, old = (
        scope_of_base("spark", (), 19200 if science == SCIENCE else None, science, CATALOG)
        for science in (SCIENCE, 2)
    )
    assert len(differences(today, here)) < len(differences(old, here))
    assert differences(old, scope_of_phrase(parse("spark", CATALOG))) == [
        f"science 2, now {SCIENCE}"
    ]


def test_what_cannot_be_added_is_apart_with_its_reason(measured, tmp_path):
    advice = advice_on("spark + tread", measured, tmp_path)
    refused = dict(advice.refused)
    assert "routed_guidance" not in refused and "routed_guidance" in by_arm(advice), (
        "it needs a route, and has one"
    )
    assert "model.route" in refused["sprint"] and "real already" in refused["real_data"]
    assert "path='FOLDER'" in refused["flux2_codec"]
    assert not refused.keys() & by_arm(advice).keys()
    assert "routed_guidance" in dict(advice_on("spark", measured, tmp_path).refused)


def test_a_better_fid_is_a_gain(measured):
    """FID falls where the F-score rises: one place says so, and a lever that is said to lower FID
    votes plus."""
    votes = {
        name: sign_votes(kind, "attribute_f1", 16, (), CATALOG).sign
        for name, kind in CATALOG.levers.items()
    }
    assert (
        votes["muon"] == votes["repa"] == 1.0
        and votes["short_captions"] == votes["bf16_storage"] == -1.0
    )
    assert votes["x_prediction"] == pytest.approx(-1 / 3), "one metric for it, two against"
    assert votes["min_snr"] == 0.0


def test_a_claim_that_depends_on_the_scale_counts_where_it_is_nearest():
    few, many = (
        sign_votes(CATALOG.levers["tread"], "attribute_f1", tokens, (), CATALOG).sign
        for tokens in (64, 2048)
    )
    assert few == -1.0 and many == 1.0


def test_our_own_verdict_on_another_metric_is_a_vote(tmp_path):
    measured = table(tmp_path, [*rows(), row("min_snr", -5.0, 1.0, "better", metric="frechet")])
    min_snr = by_arm(advice_on("spark", measured, tmp_path))["min_snr"]
    assert (
        min_snr.known == "measured elsewhere" and min_snr.votes.sign == 1.0 and not min_snr.evidence
    )


def own_study(folder, **changes):
    """A finished study of the user's, as `fulcrum study run` leaves it."""
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(FAKE["study"](**changes)))
    (folder / "plan.json").write_text("{}")
    return folder


def test_own_finished_studies_count_and_one_that_was_kept_counts_once(tmp_path):
    own_study(tmp_path / "runs/study-1", hash="0123456789abcdef")
    nothing = table(tmp_path, [])
    own = known_effects(CATALOG, tmp_path / "runs", nothing)
    assert {one.origin for one in own} == {"your study-1"} and {"muon", "repa"} <= {
        one.lever for one in own
    }
    same = [
        row(
            one.arm,
            one.gain,
            0.01,
            one.verdict,
            metric=one.metric,
            plan=one.plan,
            images=60000,
            pairs=99,
        )
        for one in own
    ]
    both = known_effects(CATALOG, tmp_path / "runs", table(tmp_path, same))
    assert len(both) == len(own) and {one.origin for one in both} == {"docs/evidence"}, (
        "the one with more pairs"
    )


def keyed(folder, seeds=range(99), kind=""):
    """The study, with cells of these seeds alone and keys as a training's are."""
    report = json.loads((folder / "report.json").read_text())
    for arm in report["arms"]:
        arm["cells"] = [cell for cell in arm["cells"] if cell["seed"] in seeds]
        for cell in arm["cells"]:
            cell["key"] = sha256_text(f"{arm['name']} {cell['seed']} {kind}")[:16]
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_trainings_that_two_plans_share_count_once(tmp_path):
    """A study of some arms, then one of more under another plan, which takes the cells that are
    there."""
    nothing, runs = table(tmp_path, []), tmp_path / "runs"
    keyed(own_study(runs / "study-1", hash="0123456789abcdef"))
    alone = known_effects(CATALOG, runs, nothing)
    keyed(own_study(runs / "study-2", hash="fedcba9876543210"), seeds=range(3))
    assert known_effects(CATALOG, runs, nothing) == alone, "all of them are among the first's"
    keyed(own_study(runs / "study-3", hash="0011223344556677"), kind="others")
    assert len(known_effects(CATALOG, runs, nothing)) == 2 * len(alone), (
        "other trainings are other evidence"
    )


@pytest.mark.parametrize("plan", ["c719a737c24afd48", "another"])
def test_what_ships_is_known_again_by_its_trainings(tmp_path, plan):
    """Kept under one plan and found in runs/ under another; its science is not told where the cells
    are gone."""
    result = StudyResult.model_validate_json(
        (keyed(own_study(tmp_path / "kept")) / "report.json").read_bytes()
    )
    shipped = table(tmp_path, measured_rows({"replication": result}, SCIENCE - 1))
    once = known_effects(CATALOG, tmp_path / "runs", shipped)
    keyed(own_study(tmp_path / "runs/study-1", hash=plan))
    assert len(once) > 3 and known_effects(CATALOG, tmp_path / "runs", shipped) == once


def test_one_plan_is_no_two_because_nobody_knows_its_science(tmp_path):
    """Rows of before say of no training; the study's cells are gone, so that it counts as one of
    today."""
    own_study(tmp_path / "runs/study-1", hash="0123456789abcdef")
    own = known_effects(CATALOG, tmp_path / "runs", table(tmp_path, []))
    facts = {"plan": "0123456789abcdef", "images": 60000, "pairs": 99, "science": SCIENCE - 1}
    same = [row(one.arm, one.gain, 0.01, one.verdict, metric=one.metric, **facts) for one in own]
    both = known_effects(CATALOG, tmp_path / "runs", table(tmp_path, same))
    assert len(both) == len(own) and {one.origin for one in both} == {"docs/evidence"}


@pytest.mark.parametrize("fault", ["running", "damaged", "trunk", "no plan"])
def test_a_study_that_asks_something_else_or_cannot_be_read_is_passed_over(tmp_path, fault):
    folder = own_study(tmp_path / "runs/study-1")
    if fault == "running":
        report = json.loads((folder / "report.json").read_text()) | {"state": "running"}
        (folder / "report.json").write_text(json.dumps(report))
    elif fault == "damaged":
        (folder / "report.json").write_text("{")
    elif fault == "trunk":
        (folder / "plan.json").write_text(json.dumps({"trunk": "spark"}))
    else:
        (folder / "plan.json").unlink()
    assert known_effects(CATALOG, tmp_path / "runs", table(tmp_path, [])) == []


def test_the_table_that_ships_is_in_the_package_and_nowhere_else():
    import fulcrum.levers

    assert (Path(fulcrum.levers.__file__).parent / "measured.json").is_file()
    assert not (ROOT / "docs/levers/measured.json").exists(), (
        "fulcrum/levers/measured.json is the table"
    )
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    assert shipped["fulcrum.levers"] == ["measured.json"]


def test_a_table_that_is_none_is_refused(tmp_path):
    path = tmp_path / "measured.json"
    for wrong in ("{", '{"a": 1}', '[{"lever": "muon"}]', "[1]"):
        path.write_text(wrong)
        with pytest.raises(BadInput, match="measured.json"):
            known_effects(CATALOG, tmp_path, path)


def test_the_text_says_nobody_knows_where_nobody_does(measured, tmp_path):
    words = text(advice_on("spark", measured, tmp_path))
    unknown = words.split("nobody knows (")[1].split("cannot be added")[0]
    assert "min_snr" in unknown and "muon" not in unknown and "contrastive_flow" not in unknown
    assert (
        "this very run" in words
        and "another place: on pocket" in words
        and "published: fid +1.83" in words
    )


def test_without_any_measurement_the_order_is_that_of_published_signs(tmp_path):
    advice = advice_on("spark", table(tmp_path, []), tmp_path)
    assert "nobody measured anything" in text(advice)
    assert by_arm(advice)["muon"].expected > 0.0 > by_arm(advice)["short_captions"].expected


def test_the_plan_settles_what_is_open_and_study_plan_accepts_it(measured, tmp_path):
    advice = advice_on("spark + ema", measured, tmp_path, settings=("optim.lr=5e-3",))
    following = next_plan(advice, CATALOG, tmp_path / "runs")
    following.write(tmp_path / "next.toml")
    plan = load(tmp_path / "next.toml")
    assert (
        plan.baseline == "spark + ema"
        and plan.settings == ("optim.lr=5e-3",)
        and len(plan.arms) == 3
    )
    assert [one.promise for one in following.levers] == sorted(
        (one.promise for one in following.levers), reverse=True
    )
    assert len({family(CATALOG.levers[one.lever]) for one in following.levers}) == 3, (
        "of three parts of a run"
    )
    assert len(lay_out(plan, CATALOG, {}, tmp_path / "runs").arms) == 4
    with pytest.raises(BadInput, match="never overwritten"):
        following.write(tmp_path / "next.toml")
    assert load(tmp_path / "next.toml") == plan


def test_what_a_study_here_decided_is_not_planned_again(measured, tmp_path):
    open_arms = {one.arm for one in unsettled(advice_on("spark", measured, tmp_path))}
    assert not open_arms & {"muon", "aligned_codec", "ema", "tread"} and "x_prediction" in open_arms
    made = [one | {"pairs": 16} if one["arm"] == "x_prediction" else one for one in rows()]
    spent = {one.arm for one in unsettled(advice_on("spark", table(tmp_path, made), tmp_path))}
    assert "x_prediction" not in spent, (
        "undecided after all pairs: the same cells in a smaller family are no new evidence"
    )


def test_what_is_planned_may_turn_out_to_help(measured, tmp_path):
    """A wide interval around nothing promises more than a narrow one around a little less than
    nothing."""
    levers = by_arm(advice_on("spark", measured, tmp_path))
    assert levers["min_snr"].promise > levers["x_prediction"].promise > 0.0
    assert levers["contrastive_flow"].promise > levers["min_snr"].promise, (
        "of which more was published for than against"
    )


def test_what_nothing_can_come_of_is_not_advised(measured, tmp_path):
    """Random weights of which a part learns were in the plan, and `study plan` refused it."""
    refused = dict(advice_on("spark", measured, tmp_path).refused)
    assert "trained weights" in refused["lora"] and "trained weights" in refused["train_only"]
    assert "one size" in refused["resolution_condition"] and "latents" in refused["bottleneck"]
    assert "192 numbers" in refused["pixels"] and "every caption" in refused["caption_filter"]
    wrong = by_arm(
        advice_on("spark", measured, tmp_path, settings=("data.source.mislabelled=0.2",))
    )
    assert "caption_filter" in wrong
    pixels = by_arm(advice_on("pocket_pixels", measured, tmp_path))
    assert "bottleneck" in pixels and "resolution_condition" in by_arm(
        advice_on("spark + resolution_ladder", measured, tmp_path)
    )


@pytest.mark.parametrize(
    ("effect", "scatter", "pairs"),
    [(0.1, 0.02, 6), (0.02, 0.018, 12), (0.02, 0.1, 16), (0.02, None, 16), (None, 0.02, 16)],
)
def test_pairs_are_chosen_by_power(effect, scatter, pairs):
    chosen, (remark,) = pairs_for(effect, 3, scatter)
    assert chosen == pairs and (
        ("the chance to see" in remark or "of five" in remark)
        if scatter and effect
        else "not known" in remark
    )


@pytest.mark.parametrize(
    ("hours", "arms", "pairs"),
    [(100.0, 3, 16), (5.0, 3, 12), (3.5, 3, 8), (2.9, 3, 7), (2.0, 2, 6), (1.3, 1, 6), (1.1, 0, 0)],
)
def test_what_does_not_fit_the_hours_is_left_out_pairs_first(
    measured, tmp_path, monkeypatch, hours, arms, pairs
):
    """A cell takes six minutes and one runs at a time: 3 levers and their baseline at 16 pairs are
    6.4 hours."""
    monkeypatch.setattr(
        next_plan_file,
        "estimate",
        lambda plan, layout, out: SimpleNamespace(seconds=360.0 * len(layout.cells)),
    )
    monkeypatch.setattr(next_plan_file, "room", lambda runs, threads: SimpleNamespace(lanes=1))
    monkeypatch.setattr(next_plan_file, "pairs_for", lambda effect, arms, scatter: (16, []))
    advice = advice_on("spark", measured, tmp_path)
    if not arms:
        with pytest.raises(BadInput, match="6 pairs of one lever take about 1.2 hours"):
            next_plan(advice, CATALOG, tmp_path / "runs", hours)
        return
    following = next_plan(advice, CATALOG, tmp_path / "runs", hours)
    assert (len(following.levers), following.pairs) == (arms, pairs) and following.hours <= hours
    assert following.hours == pytest.approx((arms + 1) * pairs / 10) and bool(
        following.remarks
    ) == ((arms, pairs) != (3, 16))


def test_the_back_test_leaves_out_what_it_predicts(measured, tmp_path):
    effects = known_effects(CATALOG, tmp_path / "runs", measured)
    alone, elsewhere = (
        score
        for score in back_test(effects, CATALOG, "attribute_f1")
        if "pocket" not in score.title.partition(" at ")[2]
    )
    assert len(alone.predictions) == len(HERE) - 1, "each lever once"
    assert {one.lever for one in elsewhere.predictions} == {"muon", "repa"}
    told = [one._replace(gain=5.0) if one.lever == "muon" else one for one in effects]
    changed = next(
        one
        for one in back_test(told, CATALOG, "attribute_f1")[0].predictions
        if one.lever == "muon"
    )
    muon = next(one for one in alone.predictions if one.lever == "muon")
    assert changed.expected == muon.expected, "its own number must not help"
    assert muon.hit and alone.hits[1] == sum(
        one.seen.clear for one in alone.predictions if abs(one.expected.mean) > 1e-9
    )
    assert "signs right: " in back_test_text([alone]) and "rank correlation: " in back_test_text(
        [alone]
    )


def test_the_back_test_can_fail(tmp_path):
    """Turn every measured sign: print is then wrong, and the figures say so."""
    turned = [
        one | {"change": -one["change"], "low": -one["high"], "high": -one["low"]} for one in rows()
    ]
    effects = known_effects(CATALOG, tmp_path / "runs", table(tmp_path, turned))
    right, called = back_test(effects, CATALOG, "attribute_f1")[0].published_hits
    assert called and right <= called / 3
    fair = known_effects(CATALOG, tmp_path / "runs", table(tmp_path))
    assert back_test(fair, CATALOG, "attribute_f1")[0].published_hits[0] > right


def test_too_little_for_a_back_test_is_said(tmp_path):
    effects = known_effects(CATALOG, tmp_path / "runs", table(tmp_path, rows()[:2]))
    assert "nothing to test" in back_test_text(back_test(effects, CATALOG, "attribute_f1"))


def run(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(["advise", *words])
    return end.value.code, capsys.readouterr()


def test_a_name_that_is_taken_is_refused_before_anything_is_loaded(tmp_path):
    """It was refused after torch, scipy and all evidence had been read: minutes on a busy
    machine."""
    (tmp_path / "next.toml").write_text("")
    code = (
        "import sys\nfrom fulcrum.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n   "
        " print(sorted(sys.modules))"
    )
    words = ["advise", "spark", "--plan", str(tmp_path / "next.toml")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2 and "never overwritten" in done.stderr
    loaded = ast.literal_eval(done.stdout)
    assert not {"torch", "scipy", "fulcrum.levers.catalog"} & set(loaded)


def test_the_command(measured, tmp_path, capsys):
    common = ("--measured", str(measured), "--out", str(tmp_path / "runs"))
    code, printed = run(capsys, "spark", *common, "--plan", str(tmp_path / "next.toml"), "--json")
    facts = json.loads(printed.out)
    assert (
        code == 0
        and facts["levers"][0]["arm"] == "aligned_codec"
        and len(facts["next"]["arms"]) == 3
    )
    assert facts["levers"][0]["evidence"][0]["pairs"] == 8 and facts["metric"] == "attribute_f1"
    assert load(tmp_path / "next.toml").arms == tuple(facts["next"]["arms"])
    assert run(capsys, "spark", *common, "--plan", str(tmp_path / "next.toml"))[0] == 2, (
        "never overwritten"
    )
    code, printed = run(capsys, "--backtest", *common, "--json")
    assert code == 0 and json.loads(printed.out)["scores"][0]["signs_called"] > 5
    code, printed = run(capsys)
    assert code == 2 and "fulcrum advise spark" in printed.err
    assert run(capsys, "spark", "--measured", str(tmp_path / "gone.json"))[0] == 2
