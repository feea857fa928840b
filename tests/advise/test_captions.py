"""Data sets: what is wrong with their captions and pictures."""

import json

import pytest
from PIL import Image

from fulcrum.advise.audit_target import AuditOptions, audit

LONG = "a weathered wooden rowing boat number {n} lies on wet sand in front of a calm grey sea, with two gulls on its rim"


@pytest.fixture
def pictures(tmp_path):
    def make(caption, count=24):
        for number in range(count):
            Image.effect_noise((16, 16), 20 + number).convert("RGB").save(tmp_path / f"{number:03}.png")
            (tmp_path / f"{number:03}.txt").write_text(caption(number) if callable(caption) else caption.format(n=number))
        return tmp_path

    return make


def rules(path, **options):
    return {fault.rule: fault for fault in audit(str(path), AuditOptions(**options)).faults}


def test_good_captions_are_clean(pictures):
    assert not rules(pictures(LONG))


@pytest.mark.parametrize(
    ("caption", "rule"),
    [
        ("boat {n}", "captions-short"),
        (LONG.replace("{n}", "1"), "captions-duplicated"),
        ("The image shows " + LONG, "captions-boilerplate"),
        (" ".join([LONG] * 6), "captions-truncated"),
        (LONG + " <b>bold</b>", "captions-control-characters"),
        (
            lambda n: (
                LONG.format(n=n)
                if n % 2
                else f"ein Ruderboot {n} mit der Nummer liegt auf dem Sand und die Möwen auf einem Rand"
            ),
            "captions-mixed-languages",
        ),
    ],
)
def test_a_fault_of_captions_is_found_alone(pictures, caption, rule):
    assert set(rules(pictures(caption))) == {rule}


def test_a_longer_encoder_cuts_nothing(pictures):
    assert not rules(pictures(" ".join([LONG] * 6)), tokens=512)


def test_a_broken_picture_is_named_and_the_rest_audited(pictures):
    folder = pictures("boat {n}")
    (folder / "005.png").write_bytes(b"no picture")
    (folder / "006.txt").unlink()
    found = rules(folder)
    assert set(found) == {"samples-broken", "captions-short"}
    assert "005.png" in found["samples-broken"].seen and "006.png" in found["samples-broken"].seen


@pytest.mark.parametrize(("held_out", "fault"), [("boat {n} on the sand", True), (LONG, False)])
def test_held_out_captions_of_another_length_are_told(pictures, held_out, fault):
    """They are the prompts that pictures are judged by."""
    folder, lines = pictures(LONG, 48), []
    for number in range(48):
        (folder / f"{number:03}.txt").unlink()
        split, text = ("train", LONG) if number < 32 else ("validation", held_out)
        lines.append(json.dumps({"file_name": f"{number:03}.png", "text": text.format(n=number), "split": split}))
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    assert ("prompts-unlike-captions" in rules(folder)) == fault
