"""What is looked at, and how: targets are told apart, comments answer faults, what cannot be read
is named."""

import json
import time
from pathlib import Path

import pytest
from PIL import Image

from fulcrum.advice.audit import AuditOptions, audit
from fulcrum.advice.audit_output import render, sarif, text
from fulcrum.advice.published import own_evidence
from fulcrum.advice.rule import Fault, at_least, stacked
from fulcrum.cli import main
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.measured_table import MEASURED
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import SCIENCE

SCRIPT = """
import torch

model = Net().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in loader:
    loss = model(batch).float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def rules(audited):
    return [fault.rule for fault in audited.faults]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_script_that_stores_its_weights_in_bf16(script):
    (fault,) = audit(str(script)).faults
    assert (
        fault.rule == "weights-in-bf16"
        and fault.severity == "error"
        and fault.place == f"{script}:4"
    )
    script.write_text(SCRIPT.replace(".to(torch.bfloat16)", ""))
    assert not audit(str(script)).faults


def test_a_script_is_never_run(tmp_path):
    path = tmp_path / "evil.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\nraise SystemExit(1)\n")
    assert not audit(str(path)).faults and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("recipe", CATALOG.recipes)
def test_our_own_recipes_are_clean(recipe):
    assert rules(audit(recipe)) == []


@pytest.mark.parametrize(
    ("phrase", "rule"),
    [
        ("spark + bf16_storage", "weights-in-bf16"),
        ("spark + bf16_optimizer_state", "optimizer-state-in-bf16"),
        ("spark + bf16_op(op=norm)", "norm-in-bf16"),
        ("spark + bf16_op(op=softmax)", "softmax-in-bf16"),
        ("spark + bf16_op(op=rope)", "rotary-in-bf16"),
        ("spark + bf16_op(op=time)", "time-in-bf16"),
        ("spark + bf16_op(op=loss)", "loss-in-bf16"),
        ("spark + tread", "routing-with-few-tokens"),
        ("spark + short_captions", "prompts-unlike-captions"),
        ("spark + ema(half_life=0.5)", "average-longer-than-training"),
    ],
)
def test_a_phrase_is_judged_by_what_its_run_is(phrase, rule):
    assert rule in rules(audit(phrase))


def test_settings_of_a_phrase_are_looked_at():
    assert rules(
        audit("spark", AuditOptions(settings=("optim.rule.eps=1e-4", "optim.warmup=0")))
    ) == [
        "adam-eps-large",
        "no-warmup",
    ]


@pytest.mark.parametrize(
    ("recipe", "setting", "rule"),
    [
        ("prx_256", "data.size=1024", "shift-without-resolution"),
        ("pocket_64", "sample.shift=1.0", "shift-without-resolution"),
        ("spark", "flow.noise_scale=3.0", "latent-deviation"),
    ],
)
def test_one_setting_is_enough(recipe, setting, rule):
    assert rules(audit(recipe, AuditOptions(settings=(setting,)))) == [rule]


def test_the_stack_is_ordered_by_gain_per_effort():
    def fault(rule, gain, effort, severity="warning"):
        return Fault(rule, "design", severity, "", "", "", "", (), "", gain, effort)

    faults = [
        fault("a", 0.5, "rework"),
        fault("b", 0.2, "line"),
        fault("c", 0.3, "edit"),
        fault("d", 0.1, "edit", "error"),
    ]
    assert [one.rule for one in stacked(faults)] == ["b", "c", "a", "d"]
    assert [one.rule for one in at_least(faults, "error")] == ["d"] and at_least(
        faults, "never"
    ) == []
    with pytest.raises(BadInput, match="no severity is called 'eror'"):
        at_least(faults, "eror")


def test_a_comment_with_a_reason_answers_a_fault(script):
    line = "model = Net().to(torch.bfloat16)"
    script.write_text(
        SCRIPT.replace(line, f"{line}  # fulcrum: ignore[weights-in-bf16] a smoke test")
    )
    audited = audit(str(script))
    assert not audited.faults and audited.ignored == [
        ("weights-in-bf16", f"{script}:4", "a smoke test")
    ]
    script.write_text(
        SCRIPT.replace(line, f"# fulcrum: ignore[weights-in-bf16] above the line\n{line}")
    )
    assert not audit(str(script)).faults


@pytest.mark.parametrize(
    ("comment", "seen"),
    [
        ("ignore[weights-in-bf16]", "without a reason"),
        ("ignore[wights] x", "no rule is called"),
        ("ignore", "names no rule"),
        ("ignore the reason", "names no rule"),
        ("ignore[] the reason", "names no rule"),
        ("noqa", "names no rule"),
    ],
)
def test_a_comment_that_answers_nothing_is_told(script, comment, seen):
    script.write_text(SCRIPT.replace("torch.bfloat16)", f"torch.bfloat16)  # fulcrum: {comment}"))
    faults = audit(str(script)).faults
    assert {"weights-in-bf16", "ignore-comment"} == {fault.rule for fault in faults}
    assert any(seen in fault.seen for fault in faults)


def test_a_text_that_looks_like_a_comment_is_none(script):
    script.write_text(SCRIPT + 'text = "# fulcrum: ignore[wights] x"\n')
    assert rules(audit(str(script))) == ["weights-in-bf16"]


def test_what_cannot_be_read_is_named_and_the_rest_audited(tmp_path):
    (tmp_path / "good.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "broken.yaml").write_text("a: [1\nb: }")
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    found = rules(audit(str(tmp_path)))
    assert found.count("unreadable") == 4 and "weights-in-bf16" in found


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.py", "def (:\n", "cannot be parsed"),
        ("nul.py", "a = 1\x00", "cannot be parsed"),
        ("broken.json", "{", "cannot be parsed"),
        ("model.pt", "x", "pickle"),
        ("notes.txt", "x", "nothing that an audit can read"),
        ("cut.safetensors", "x", "no whole safetensors"),
    ],
)
def test_a_target_that_cannot_be_read_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=message):
        audit(str(tmp_path / name))


def test_aliases_that_grow_without_end_are_refused(tmp_path):
    pytest.importorskip("yaml")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines))
    start = time.monotonic()
    with pytest.raises(BadInput, match="aliases"):
        audit(str(tmp_path / "bomb.yaml"))
    assert time.monotonic() - start < 20


def test_a_tag_of_python_makes_no_object(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "tag.yaml").write_text(
        f"a: !!python/object/apply:os.mkdir ['{tmp_path}/made']\nlr: 1e-4\n"
    )
    audit(str(tmp_path / "tag.yaml"))
    assert not (tmp_path / "made").exists()


def test_a_plan_is_looked_at_arm_by_arm(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'title = "t"\nbaseline = "spark"\nseeds = [0, 1]\narms = ["muon", "muon + repa",'
        ' "short_captions", "tred"]\n'
    )
    found = {fault.rule: fault for fault in audit(str(plan)).faults}
    assert set(found) == {
        "too-few-pairs",
        "arm-is-compound",
        "prompts-unlike-captions",
        "arm-refused",
    }
    assert "muon + repa" in found["arm-is-compound"].place and "tred" in found["arm-refused"].place


def test_an_unknown_name_in_a_plan_is_named_and_the_rest_audited(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'title = "t"\nbaseline = "spark"\nseeds = [0, 1]\narms = ["muon"]\nsampels = 512\n'
    )
    found = {fault.rule: fault.seen for fault in audit(str(plan)).faults}
    assert (
        set(found) == {"unreadable", "too-few-pairs"}
        and "did you mean: samples" in found["unreadable"]
    )
    plan.write_text('title = "t"\nbaseline = "spark"\narms = ["muon"]\n')
    with pytest.raises(BadInput, match="seeds"):
        audit(str(plan))


def test_a_plan_with_many_arms_and_few_pairs_sees_little(tmp_path):
    arms = [f"muon(momentum=0.{place})" for place in range(70, 95)]
    head = 'title = "t"\nbaseline = "spark"\nsmallest_effect = 0.02\n'
    (tmp_path / "wide.toml").write_text(f"{head}seeds = [0, 1, 2, 3, 4, 5]\narms = {arms}\n")
    (tmp_path / "narrow.toml").write_text(
        f"{head}seeds = [0, 1, 2, 3, 4, 5, 6, 7]\narms = {arms[:3]}\n"
    )
    assert rules(audit(str(tmp_path / "wide.toml"))) == ["power-low"] and not rules(
        audit(str(tmp_path / "narrow.toml"))
    )


def test_our_example_plans_hold_no_surprise():
    # it says so itself: that arm shows the published fault
    (fault,) = audit("examples/quick.toml").faults
    assert fault.rule == "prompts-unlike-captions" and fault.severity == "note", (
        "our first example ends well in CI"
    )
    assert rules(audit("examples/interactions.toml")) == []
    assert rules(audit("examples/late_decisions.toml")) == [], (
        "a control of two levers and one change from it"
    )


def test_a_figure_beside_scripts_makes_no_data_set(tmp_path):
    """examples/emoji was told that its README's picture has no caption."""
    (tmp_path / "train.py").write_text(
        "model = model.to(torch.bfloat16)\noptimizer = torch.optim.AdamW(model.parameters())\n"
    )
    Image.new("RGB", (64, 64)).save(tmp_path / "figure.png")
    assert "samples-broken" not in rules(audit(str(tmp_path)))
    (tmp_path / "figure.txt").write_text("a black square")
    assert audit(str(tmp_path)).kind == "data set and 1 script"


def test_plans_in_a_folder_are_plans_and_no_arms():
    found = audit("examples", AuditOptions(files=(Path("examples/emoji/recipe.py"),))).faults
    assert {fault.rule for fault in found} == {
        "prompts-unlike-captions",
        "doses-unequal",
        "arm-is-compound",
    }
    compound = [fault.place for fault in found if fault.rule == "arm-is-compound"]
    # a lever that moves several axes, the best stack: plans say so
    assert all(any(word in place for word in ("edm", "irepa + shifted_time")) for place in compound)
    assert any(fault.place.startswith("quick.toml: ") for fault in found)


def test_the_page_escapes_everything_and_runs_nothing(tmp_path):
    path = tmp_path / "<script>alert(1)</script>.py"
    (tmp_path / "<script>alert(1)<").mkdir()
    path = tmp_path / "<script>alert(1)<" / "a&b.py"
    path.write_text(SCRIPT.replace("Net()", 'Net("<img src=x onerror=alert(1)>")'))
    page = render(audit(str(path)))
    assert (
        "<script" not in page
        and "<img" not in page
        and "&lt;img" in page
        and "default-src 'none'" in page
    )
    assert "http://" not in page and "https://" not in page


def test_the_text_says_what_where_why_and_what_to_do(script):
    words = text(audit(str(script)))
    for part in ("1. error: weights-in-bf16", f"{script}:4", "why ", "size ", "fix ", "effort "):
        assert part in words


def test_own_studies_and_our_measurements_stand_beside_the_published_number(tmp_path):
    folder = tmp_path / "study-1"
    folder.mkdir()
    effect = {
        "arm": "bf16_storage",
        "metric": "f1",
        "unit": "images",
        "n": 6,
        "mean": -0.1,
        "low": -0.2,
        "high": -0.05,
        "verdict": "worse",
    }
    # says nothing of the lever alone
    other = effect | {"arm": "bf16_storage(x=1) instead of bf16_storage", "mean": 0.3}
    arms = [
        {"name": "bf16_storage", "against": ""},
        {"name": other["arm"], "against": "bf16_storage"},
    ]
    report = {"plan": {"primary_metric": "f1"}, "arms": arms, "effects": [effect, other]}
    (folder / "report.json").write_text(json.dumps(report))
    measured = tmp_path / "measured.json"
    row = {
        "lever": "bf16_storage",
        "recipe": "spark",
        "science": 2,
        "metric": "f1",
        "change": -0.02,
        "low": -0.05,
        "high": 0.01,
        "pairs": 6,
        "date": "2026-11-17",
        "note": "",
    }
    measured.write_text(
        json.dumps([{**row, "verdict": "inconclusive"}, {**row, "science": 1, "verdict": "old"}])
    )
    evidence = own_evidence(tmp_path, measured, ("bf16_storage", ""))
    fault = audit("spark + bf16_storage", None, evidence).faults[0]
    assert fault.evidence[0] == "PRX Part 2" and len(fault.evidence) == 3
    assert "your study study-1: bf16_storage: f1 -0.1" in fault.evidence[1]
    assert "measured by us: bf16_storage on spark: f1 -0.02" in fault.evidence[2]
    assert f"by version 2 of the science, now {SCIENCE}" in fault.evidence[2]


CAPTIONS_ELSEWHERE = ["short_captions on pocket", "short_captions on emoji_latents"]


@pytest.mark.parametrize(
    ("lever", "arms"),
    [
        ("bf16_op(op=rope)", ["bf16_op(op=rope)"]),
        ("bf16_op(op=norm)", ["bf16_op"]),  # its default
        (
            "short_captions",
            ["short_captions on spark", "short_captions(prompts=matched)", *CAPTIONS_ELSEWHERE],
        ),
        ("caption_filter", ["caption_filter(drop=0.2) on spark with data.source.mislabelled=0.2"]),
    ],
)
def test_every_number_of_ours_says_which_arm_it_is_of(tmp_path, lever, arms):
    """Five numbers of one lever stood under every rule about an operation, and none said which was
    which."""
    sentences = own_evidence(tmp_path, MEASURED, [lever]).of(lever)
    assert len(sentences) == len(arms)
    for sentence, arm in zip(sentences, arms, strict=True):
        assert sentence.startswith(f"measured by us: {arm}")


def test_numbers_that_are_cited_are_explained(script):
    words = text(audit(str(script)))
    assert "A10: nothing reads the setting that the BF16 arm sets" in words and "A9" not in words
    assert "A10: nothing reads" in render(audit(str(script)))
    assert "faults that were found in the published PRX code" in words
    assert "PRX code" not in text(audit("spark"))


def run(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(["audit", *words])
    return end.value.code, capsys.readouterr()


BASELINE = "run_name: base\nsave_folder: /out/ckpt\nlr: 1e-4\nmodel:\n  depth: 16\n"


@pytest.mark.parametrize("reference", ["/base", "../base", "/conf/base", "conf/base.yaml"])
def test_experiments_in_a_folder_are_held_against_the_base_above_them(
    tmp_path, monkeypatch, reference
):
    """`- /base` was an error, `- ../base` was held against nothing, and no line said so."""
    pytest.importorskip("yaml")
    (tmp_path / "hydra/conf/experiment").mkdir(parents=True)
    (tmp_path / "hydra/conf/base.yaml").write_text(BASELINE)
    (tmp_path / "hydra/conf/experiment/deep.yaml").write_text(
        f"defaults:\n  - {reference}\nrun_name: deep\nmodel:\n  depth: 24\n"
    )
    monkeypatch.chdir(tmp_path)
    audited = audit("hydra")
    assert [(fault.rule, fault.place) for fault in audited.faults] == [
        ("outputs-shared", "conf/experiment/deep.yaml:1")
    ]
    assert (
        "1 arms held against 1 baseline" in audited.looked_at
        and "not found" not in audited.looked_at
    )
    place = sarif(audited)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "hydra/conf/experiment/deep.yaml"


def test_what_inherits_from_elsewhere_is_counted(tmp_path):
    """A base that lies outside of the target is there, but what is in it is not known."""
    pytest.importorskip("yaml")
    (tmp_path / "conf/arms").mkdir(parents=True)
    (tmp_path / "conf/base.yaml").write_text(BASELINE)
    for arm in ("a", "b"):
        (tmp_path / f"conf/arms/{arm}.yaml").write_text(f"defaults:\n  - /base\nlr: {len(arm)}\n")
    audited = audit(str(tmp_path / "conf/arms"))
    assert (
        "2 files inherit what was not found" in audited.looked_at
        and "default-not-there" not in rules(audited)
    )
    (tmp_path / "conf/base.yaml").unlink()
    assert set(rules(audit(str(tmp_path / "conf/arms")))) == {"default-not-there"}


def test_the_list_is_as_long_as_the_headline_says_and_every_fix_has_its_line(tmp_path):
    (tmp_path / "a.json").write_text('{"--use_ema": "False",\n "shuffle": "False"}')
    words = text(audit(str(tmp_path / "a.json")))
    assert "2 warnings in 2 places; 1 kind\n" in words and "alike" not in words
    assert '   fix   write "--use_ema": false\n         write "shuffle": false\n' in words


@pytest.mark.parametrize(
    ("name", "content", "fix"),
    [
        ("a.toml", "full_bf16 = true", "set full_bf16 = false;"),
        ("a.yaml", "model:\n  dtype: bfloat16", "set dtype: float32;"),
        ("a.json", '{"model": {"dtype": "bf16"}}', 'set "dtype": "fp32";'),
    ],
)
def test_a_fix_is_written_as_the_file_is(tmp_path, name, content, fix):
    pytest.importorskip("yaml")
    (tmp_path / name).write_text(content)
    (fault,) = audit(str(tmp_path / name)).faults
    assert fault.fix.startswith(fix)


def test_what_is_sure_stands_before_what_is_not(tmp_path):
    """A switch that is text, and an option that nothing reads, stood before weights in bf16."""
    (tmp_path / "a.py").write_text(
        SCRIPT
        + "parser.add_argument('--ema', type=bool)\nargs = parser.parse_args()\nprint(args.seed)\n"
    )
    assert rules(audit(str(tmp_path / "a.py"))) == [
        "weights-in-bf16",
        "boolean-as-text",
        "setting-read-by-nobody",
    ]


def test_rules_can_be_chosen(script, capsys):
    script.write_text(SCRIPT + "parser.add_argument('--ema', type=bool)\n")
    assert (
        run(capsys, str(script), "--skip", "weights-in-bf16", "--skip", "boolean-as-text")[0] == 0
    )
    code, printed = run(capsys, str(script), "--only", "boolean-as-text", "--json")
    assert code == 3 and [fault["rule"] for fault in json.loads(printed.out)["faults"]] == [
        "boolean-as-text"
    ]
    code, printed = run(capsys, str(script), "--only", "boolean-as-txt")
    assert code == 2 and "did you mean: boolean-as-text" in printed.err


def test_a_long_audit_says_how_far_it_is(tmp_path, monkeypatch):
    """200 seconds over a package showed nothing."""
    monkeypatch.setattr("fulcrum.spec.progress.SOONEST", 0.0)
    for number in range(3):
        (tmp_path / f"{number}.py").write_text(SCRIPT)
    lines = list[str]()
    audit(str(tmp_path), AuditOptions(say=lines.append))
    assert any(line.startswith("read 1 of 3 files") for line in lines)
    assert any(line.startswith("looking at 3 of 3 files") for line in lines)


def test_a_terminal_shows_the_rules_without_anchors(monkeypatch, capsys):
    assert "<a id" in run(capsys, "--rules")[1].out, "the page's table, for a file"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    printed = run(capsys, "--rules")[1].out
    assert (
        "<a id" not in printed
        and "|" not in printed
        and "\nweights-in-bf16  error; note of weights" in printed
    )


def test_exit_codes_for_ci(script, tmp_path, capsys):
    code, printed = run(capsys, str(script), "--json")
    assert code == 3 and json.loads(printed.out)["faults"][0]["rule"] == "weights-in-bf16"
    assert run(capsys, str(script), "--fail-on", "never")[0] == 0
    assert run(capsys, "spark")[0] == 0
    code, printed = run(capsys, str(tmp_path / "missing.py"))
    assert code == 2 and "there is nothing at" in printed.err
    assert run(capsys, str(script), "--fail-on", "fatal")[0] == 2


def test_a_place_that_cannot_be_written_is_named(script, tmp_path, capsys):
    for option, end in (("--sarif", ".sarif"), ("--html", ".html")):
        (tmp_path / f"folder{end}").mkdir()
        for place in (tmp_path / f"folder{end}", tmp_path / "no" / f"x{end}"):
            code, printed = run(capsys, str(script), option, str(place))
            assert (
                code != 0
                and f"cannot write {place}" in printed.err
                and "should not happen" not in printed.err
            )


def test_the_former_command_is_named_by_a_hint(capsys, tmp_path):
    code, printed = run(capsys, "--with", "my_lever.py")
    assert code == 2 and "fulcrum levers check --with my_lever.py" in printed.err


def test_a_lever_alone_is_no_run(capsys):
    code, printed = run(capsys, "tread")
    assert code == 2 and "fulcrum levers check tread" in printed.err


def test_a_page_is_written(script, tmp_path, capsys):
    run(capsys, str(script), "--html", str(tmp_path / "audit.html"))
    assert "weights-in-bf16" in (tmp_path / "audit.html").read_text()
