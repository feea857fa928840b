"""Data sets: what is wrong with their captions and pictures."""

import json
import shlex

import pytest
from PIL import Image

from fulcrum.advice.audit import AuditOptions, audit
from fulcrum.cli import main
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options

LONG = (
    "a weathered wooden rowing boat number {n} lies on wet sand in front of a calm grey sea, with"
    " two gulls on its rim"
)


@pytest.fixture
def pictures(tmp_path):
    def make(caption, count=24):
        for number in range(count):
            Image.effect_noise((16, 16), 20 + number).convert("RGB").save(
                tmp_path / f"{number:03}.png"
            )
            (tmp_path / f"{number:03}.txt").write_text(
                caption(number) if callable(caption) else caption.format(n=number)
            )
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
                else (
                    f"ein Ruderboot {n} mit der Nummer liegt auf dem Sand und die Möwen auf einem"
                    " Rand"
                )
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


def test_a_picture_that_was_cut_off_is_found(pictures):
    """By its header it is whole."""
    folder = pictures(LONG)
    whole = (folder / "005.png").read_bytes()
    (folder / "005.png").write_bytes(whole[: len(whole) // 2])
    (fault,) = rules(folder).values()
    assert fault.rule == "samples-broken" and "005.png: damaged or cut off" in fault.seen
    assert (
        shlex.join(
            ["fulcrum", "data", "import", str(folder), f"{folder}_store", "--bad", "quarantine"]
        )
        in fault.fix
    )
    assert "24 samples, all pictures decoded" in audit(str(folder)).looked_at


def test_of_many_pictures_some_are_decoded_all_over_them(pictures, monkeypatch):
    monkeypatch.setattr("fulcrum.advice.caption_sets.DECODED", 6)
    assert "24 samples, 12 pictures decoded" in audit(str(pictures(LONG))).looked_at


def test_a_fault_of_the_whole_names_it_once(pictures):
    folder = pictures("The image shows " + LONG)
    assert rules(folder)["captions-boilerplate"].place == str(folder)


def test_the_fixes_of_a_store_can_be_run_as_they_are(pictures, tmp_path, capsys):
    def caption(number):
        return (
            f"ein Boot {number} mit der Nummer liegt auf dem Sand und die Möwen sind da"
            if number % 3 == 0
            else LONG
        )

    store = tmp_path.with_name("a store")
    run_import(open_given(str(pictures(caption))), store, Options(size=16), lambda _: None)
    fix = rules(store)["captions-mixed-languages"].fix
    command = shlex.split(fix[fix.index("fulcrum data") :])
    with pytest.raises(SystemExit) as end:
        main(command[1:])
    assert not end.value.code and "captions-mixed-languages" not in rules(f"{store}_en"), (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(("held_out", "fault"), [("boat {n} on the sand", True), (LONG, False)])
def test_held_out_captions_of_another_length_are_told(pictures, held_out, fault):
    """They are the prompts that pictures are judged by."""
    folder, lines = pictures(LONG, 48), []
    for number in range(48):
        (folder / f"{number:03}.txt").unlink()
        split, text = ("train", LONG) if number < 32 else ("validation", held_out)
        lines.append(
            json.dumps(
                {"file_name": f"{number:03}.png", "text": text.format(n=number), "split": split}
            )
        )
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    assert ("prompts-unlike-captions" in rules(folder)) == fault
