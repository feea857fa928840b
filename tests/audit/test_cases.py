"""Every fault of docs/published.md, as small scripts and configurations, is found by its rule;
sound twins raise none."""

import re
from pathlib import Path

import pytest

from fulcrum.advice.audit import audit
from fulcrum.advice.rules import BY_ID, RULES

pytest.importorskip("yaml", reason="configurations are YAML")
CASES = Path(__file__).parent / "cases"
EXPECTED = {
    "a01_metric_range": "metric-range",
    "a02_samples_per_process": "samples-per-process",
    "a02_samples_in_code": "samples-per-process",
    "a03_noise_shared": "noise-shared-by-samples",
    "a03_noise_shared_by_ranks": "noise-shared-by-samples",
    "a04_seed_not_in_order": "seed-not-in-order",
    "a04_sampler_without_seed": "seed-not-in-order",
    "a05_outputs_shared": "outputs-shared",
    "a06_weights_only": "weights-only-checkpoint",
    "a06_weights_only_in_code": "weights-only-checkpoint",
    "a07_compound_arm": "arm-is-compound",
    "a08_muon_moves_eps": "optimizer-arm-moves-more",
    "a09_short_captions": "prompts-unlike-captions",
    "a10_key_read_by_nobody": "setting-read-by-nobody",
    "a10_option_read_by_nobody": "setting-read-by-nobody",
    "a11_caching_unequal": "caching-unequal",
    "a12_doses_unequal": "doses-unequal",
    "a13_channels": "channels-mismatch",
    "a13_perceptual": "perceptual-without-picture",
    "a13_default_not_there": "default-not-there",
    "a14_kernel": "kernel-blind-to-diversity",
    "a14_kernel_in_code": "kernel-blind-to-diversity",
    "a15_validation": "validation-draws-anew",
    "a16_teacher_resize": "resize-without-smoothing",
    "a17_projector": "projector-in-bf16",
    "a17_projector_in_config": "projector-in-bf16",
    "a18_fsdp_inputs": "fsdp-casts-inputs",
    "a18_fsdp_in_config": "fsdp-casts-inputs",
    "a19_errors_swallowed": "errors-swallowed",
    "a20_codec_class": "codec-class-mismatch",
    "a20_codec_class_in_config": "codec-class-mismatch",
    "a21_irepa": "irepa-normalises-features",
    "a21_irepa_in_config": "irepa-normalises-features",
}


def found(case, side):
    (path,) = (CASES / case).glob(f"{side}*")
    return [fault.rule for fault in audit(str(path)).faults]


def test_recall_is_whole_and_nothing_is_a_false_alarm(capsys):
    faults = {case: found(case, "fault") for case in EXPECTED}
    sound = {case: found(case, "sound") for case in EXPECTED}
    missed = {case: rules for case, rules in faults.items() if EXPECTED[case] not in rules}
    beside = {case: rules for case, rules in faults.items() if set(rules) - {EXPECTED[case]}}
    alarms = {case: rules for case, rules in sound.items() if rules}
    recall = 1 - len(missed) / len(faults)
    with capsys.disabled():
        print(
            f"\naudit: recall {recall:.0%} of {len(faults)} cases of 21 published faults, "
            f"false alarms {len(alarms)} of {len(sound)} sound twins"
        )
    assert not missed
    assert not alarms
    assert not beside, "a fault is told by its own rule, and by no other"


def test_every_published_fault_has_a_case_and_a_rule():
    numbers = {f"A{number}" for number in range(1, 22)}
    assert {f"A{int(case[1:3])}" for case in EXPECTED} == numbers
    assert {rule.published for rule in RULES} - {""} == numbers
    for case, rule in EXPECTED.items():
        assert BY_ID[rule].published == f"A{int(case[1:3])}", case


def test_every_case_is_tried():
    assert {path.name for path in CASES.iterdir()} == set(EXPECTED)


def test_the_page_of_the_published_study_knows_the_same_faults():
    page = (Path(__file__).parents[2] / "docs/published.md").read_text(encoding="utf-8")
    assert {rule.published for rule in RULES} - {""} == set(
        re.findall(r"^\| (A\d+) \|", page, re.MULTILINE)
    )
