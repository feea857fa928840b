"""Captions anew: resumed, judged, counted, never in place of the old ones."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fulcrum.data.caption_quality import CaptionRules
from fulcrum.data.captions import NamedChooser
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.picture_store import PictureStore, read_about
from fulcrum.data.stores.verify import check
from fulcrum.networks.captioning.captioners import SHIPPED, CaptionAnswer, Settings, chosen_prompts
from fulcrum.networks.captioning.recaption import Blocks, Recaption, Wish, ask_part
from fulcrum.spec.errors import BadInput

SHORT = (SHIPPED["short"],)


def quiet(text):
    pass


def wish(store, to, **more):
    return Wish(
        store, to, "scripted", "recap", more.pop("prompts", SHORT), batch=8, block=20, **more
    )


def recaption(wish, say, open_it=None):
    """All of it, in this process."""
    go = Recaption(wish, say)
    return go.finished(lambda: go.ask(open_it=open_it))


def said(number, style):
    """One answer in ten is bad, each in its own way."""
    bad = {
        0: CaptionAnswer(""),
        10: CaptionAnswer("I'm sorry, I cannot help with that picture"),
        20: CaptionAnswer("red " * 12),
        30: CaptionAnswer("a red circle\x07 on the left"),
        40: CaptionAnswer("word " + " ".join(f"w{n}" for n in range(60))),
        50: CaptionAnswer("a red circle that goes on", ended=False),
        60: CaptionAnswer("ein roter Kreis auf dem grauen Grund mit einem Stern"),
    }
    return bad.get(number, CaptionAnswer(f" a red  circle\nnumber {number} "))


def test_new_columns_stand_beside_the_old_with_their_provenance(world_store, scripted, tmp_path):
    rules = CaptionRules(language="en")
    done = recaption(
        wish(world_store, tmp_path / "new", rules=rules), quiet, lambda: scripted(said)
    )
    old, new = PictureStore(world_store), PictureStore(tmp_path / "new")
    assert len(new) == len(old) - 7 and new.about["captions"] == {"recap_short": 89, "short": 89}
    assert new.captions(0) == {**old.captions(1), "recap_short": ["a red circle number 1"]}, (
        "white space made plain"
    )
    assert (new.picture(0) == old.picture(1)).all() and check(tmp_path / "new")["faults"] == []
    assert read_about(world_store) == old.about and check(world_store)["sound"], (
        "the parent is as it was"
    )
    assert new.about["parent"] == old.about["content"] != new.about["content"]
    column = new.about["columns"]["recap_short"]
    assert (
        column["model"] == "scripted"
        and column["prompt"]["version"] == "short-1"
        and column["finished"] >= column["begun"]
    )
    assert done.about["quarantined_answers"] == {
        f"short: {why}": 1
        for why in (
            "control characters",
            "cut off",
            "empty",
            "language",
            "refusal",
            "repetition",
            "too long",
        )
    }
    lines = [
        json.loads(line)
        for line in (tmp_path / "new" / "quarantine.jsonl").read_text().splitlines()
    ]
    assert [line["row"] for line in lines] == [0, 10, 20, 30, 40, 50, 60] and lines[1][
        "reason"
    ].startswith("refusal")
    ledger = json.loads((tmp_path / "new" / "ledger.json").read_text())
    assert (ledger["given"], ledger["kept"], ledger["quarantined"]) == (96, 89, 7)
    told = done.about["caption_statistics"]
    assert (
        told["before"]["short"]["captions"] == 96 and told["after"]["recap_short"]["captions"] == 89
    )
    prompts = FolderSource(tmp_path / "new").prompts(
        NamedChooser(("recap_short",), (1.0,)), np.arange(3)
    )
    assert all(text.startswith("a red circle number") for text in prompts)


def test_pictures_may_stay_without_a_caption(world_store, scripted, tmp_path):
    recaption(wish(world_store, tmp_path / "new", keep_all=True), quiet, lambda: scripted(said))
    about = read_about(tmp_path / "new")
    assert about["count"] == 96 and about["captions"] == {"recap_short": 90, "short": 96}, (
        "no rule of language was asked for"
    )


def test_a_killed_command_asks_for_what_is_left_only(world_store, scripted, tmp_path):
    class Killed(Exception):
        pass

    def dies(number, style):
        if number == 45:
            raise Killed
        return said(number, style)

    first, second, lines = scripted(dies), scripted(said), []
    with pytest.raises(Killed):
        recaption(wish(world_store, tmp_path / "new"), quiet, lambda: first)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new.partial" / "answers" / "00000.jsonl").write_text("{}\nnot what was written\n")
    recaption(wish(world_store, tmp_path / "new"), lines.append, lambda: second)
    assert sorted({number // 20 for number, _ in second.asked}) == [0, 2, 3, 4], (
        "the second block was done and sound"
    )
    assert any("going on after 1 blocks" in line for line in lines)
    recaption(wish(world_store, tmp_path / "whole"), quiet, lambda: scripted(said))
    assert read_about(tmp_path / "new")["content"] == read_about(tmp_path / "whole")["content"]


def test_other_rules_judge_the_same_answers_anew(world_store, scripted, tmp_path):
    strict = wish(world_store, tmp_path / "new", rules=CaptionRules(least_words=24))
    with pytest.raises(BadInput, match="nothing would be left"):
        recaption(strict, quiet, lambda: scripted(said))
    again = scripted(said)
    recaption(wish(world_store, tmp_path / "new"), quiet, lambda: again)
    assert again.asked == [], "nobody is asked twice"


def test_another_wish_does_not_mix_with_an_unfinished_one(world_store, scripted, tmp_path):
    go = Recaption(wish(world_store, tmp_path / "new"), quiet)
    go.ask(0, 2, lambda: scripted(said))
    with pytest.raises(BadInput, match="2 of 5 blocks are not captioned"):
        go.complete()
    other = wish(world_store, tmp_path / "new", prompts=(SHIPPED["long"],))
    with pytest.raises(BadInput, match="with another prompts"):
        Recaption(other, quiet).ask(open_it=lambda: scripted(said))


def test_parts_of_two_processes_make_one_store(world_store, tmp_path):
    """The embedded captioner, for real; two parts with two batch sizes write what one process
    writes."""
    prompts = tuple(chosen_prompts("long,tags").values())
    whole = Wish(world_store, tmp_path / "whole", "world", "recap", prompts, block=32)
    recaption(whole, quiet)
    parts = Wish(world_store, tmp_path / "parts", "world", "recap", prompts, block=32, batch=16)
    assert ask_part(parts, 1, 2, 1) == 32 and ask_part(parts, 0, 2, 1) == 64
    done = Recaption(parts, quiet).complete()
    assert done.about["content"] == read_about(tmp_path / "whole")["content"] and done.busy is None
    assert set(done.about["captions"]) == {"short", "recap_long", "recap_tags"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "two words"}, "cannot be called"),
        ({"least_score": 0.0}, "needs somebody who scores"),
        ({"settings": Settings(max_tokens=9), "model": "world"}, "its own lengths"),
        ({"model": "/no/such/folder"}, "there is no folder"),
        ({"name": "x", "to": "store"}, "nothing is overwritten"),
    ],
)
def test_wishes_that_cannot_be(world_store, tmp_path, change, message):
    change = {**change, "to": world_store} if "to" in change else change
    plain = {
        "store": world_store,
        "to": tmp_path / "new",
        "model": "world",
        "name": "recap",
        "prompts": SHORT,
        **change,
    }
    with pytest.raises(BadInput, match=message):
        recaption(Wish(**plain), quiet)
    assert not list(tmp_path.iterdir()), "and leaves nothing"


def test_captions_that_are_done_are_done_when_they_are_asked_for_again(
    world_store, scripted, tmp_path
):
    wanted, lines, again = wish(world_store, tmp_path / "new", keep_all=True), [], scripted(said)
    about = recaption(wanted, quiet, lambda: scripted(said)).about
    (tmp_path / "new" / "caption.json").write_text("{}")  # it was killed as it tidied up
    done = recaption(replace(wanted, batch=3, block=7), lines.append, lambda: again)
    assert (done.about, done.busy, again.asked) == (about, None, []) and "already" in lines[-1]
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["new"]
        and not (tmp_path / "new" / "caption.json").exists()
    )
    Recaption(wanted, quiet).ask(0, 2)
    assert not (tmp_path / "new.partial").exists(), "a process that comes late begins nothing"
    for other in (
        {"keep_all": False},
        {"rules": CaptionRules(least_words=3)},
        {"settings": Settings(seed=1)},
        {"limit": 9},
    ):
        with pytest.raises(BadInput, match="holds a data set already"):
            recaption(replace(wanted, **other), quiet, lambda: again)


def test_columns_are_never_written_twice(world_store, scripted, tmp_path):
    recaption(wish(world_store, tmp_path / "new"), quiet, lambda: scripted(said))
    with pytest.raises(BadInput, match="called 'recap_short' already"):
        recaption(wish(tmp_path / "new", tmp_path / "newer"), quiet, lambda: scripted(said))
    assert Blocks(PictureStore(tmp_path / "new"), tmp_path / "x", 20).missing() == [0, 1, 2, 3, 4]


def test_scores_are_kept_and_can_be_asked_for(world_store, scripted, tmp_path):
    """A caption of the picture passes, one that speaks of another is quarantined."""
    from fulcrum.data.world.scene import scenes
    from fulcrum.data.world.words import captions

    texts = captions(scenes("reference", np.arange(96)), "long").texts
    names = {row: PictureStore(world_store).name(row) for row in range(96)}

    def speaks(row, style):
        number = int(names[row].split()[1])
        return CaptionAnswer(texts[number] if number % 4 else texts[(number + 1) % 96])

    order = wish(
        world_store, tmp_path / "new", scorer="world", least_score=-4.0, prompts=(SHIPPED["long"],)
    )
    done = recaption(order, quiet, lambda: scripted(speaks))
    lines = [
        json.loads(line)
        for line in (tmp_path / "new" / "quarantine.jsonl").read_text().splitlines()
    ]
    wrong = [int(line["name"].split()[1]) % 4 == 0 for line in lines]
    assert (
        len(lines) >= 20
        and np.mean(wrong) > 0.9
        and all(line["reason"].startswith("score: ") for line in lines)
    )
    told = done.about["caption_statistics"]
    assert told["after"]["recap_long"]["score_mean"] > 0 and "score_mean" in told["before"]["short"]


def test_own_prompts_have_a_version_of_their_own(tmp_path):
    (tmp_path / "ask.txt").write_text("What is this?\n")
    own = chosen_prompts("long,short", [f"long={tmp_path / 'ask.txt'}"])
    assert own["long"].text == "What is this?" and own["long"].version.startswith("own-")
    assert own["short"] == SHIPPED["short"]
    for styles, pair, message in (
        ("long,long", [], "different styles"),
        ("lang", [], "no style is called"),
        ("long", ["short=x"], "STYLE=FILE"),
        ("long", [f"long={tmp_path / 'none'}"], "cannot be read"),
    ):
        with pytest.raises(BadInput, match=message):
            chosen_prompts(styles, pair)
