"""Drawing for the page: the same pictures as `fulcrum sample`, each once, the newest request first,
faults told."""

import io
import json
import shlex
import shutil
import threading
import time

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.cli.gallery import server as drawing_desk
from fulcrum.cli.gallery.runs import GalleryRequest, OpenModels, named_runs
from fulcrum.levers.catalog import CATALOG
from fulcrum.training.painter import Painter

PROMPT = "a large red circle at the top left."


def request(*columns, prompt=PROMPT, page="a", **settings):
    wanted = [{"key": column} if isinstance(column, str) else column for column in columns]
    return GalleryRequest(page=page, prompt=prompt, columns=wanted, **settings)


def answered(desk, *columns, **settings):
    """The columns' answers; the last one says that all is done."""
    *columns, last = desk.answers(request(*columns, **settings))
    assert last["done"]
    return columns


def pictures(desk, answer):
    kept = [
        desk.picture(*one["id"].split("-")[:1], int(one["id"][-1])) for one in answer["pictures"]
    ]
    return [Image.open(io.BytesIO(one.data)) for one in kept]


@pytest.mark.parametrize(
    "column, settings",
    [
        ("plain", {}),
        ("plain", {"seed": 7, "count": 2, "guidance": 3.5, "steps": 3}),
        ("stopped", {}),
        ("large", {"prompt": '-- it\'s "a" $(star) `x`; \\ blue'}),
        ({"at": 16}, {"steps": 3}),
    ],
)
def test_the_command_draws_the_same_file(desk, out, keys, tmp_path, capsys, column, settings):
    wanted = {"key": keys["plain"], **column} if isinstance(column, dict) else keys[column]
    [answer] = answered(desk, wanted, **settings)
    words = shlex.split(answer["command"])
    assert words[:2] == ["fulcrum", "sample"]
    with pytest.raises(SystemExit) as end:
        main([*words[1:2], "--to", str(tmp_path), "--json", *words[2:]])
    printed = capsys.readouterr()
    assert not end.value.code, printed
    files = json.loads(printed.out.splitlines()[-1])["files"]
    assert len(files) == len(answer["pictures"]) == settings.get("count", 1)
    for path, ours in zip(files, pictures(desk, answer), strict=True):
        with Image.open(path) as theirs:
            assert np.array_equal(np.asarray(theirs), np.asarray(ours)) and theirs.text == ours.text


def test_arms_share_their_noise_and_a_picture_is_drawn_once(desk, keys, monkeypatch):
    noises = []
    latents = Painter.latents
    monkeypatch.setattr(
        Painter, "latents", lambda self, *args: noises.append(args[1:3]) or latents(self, *args)
    )
    first = answered(desk, keys["plain"], keys["hostile"], seed=3)
    assert noises == [(3, np.array([0]))] * 2
    again = answered(desk, keys["hostile"], keys["plain"], seed=3)
    assert len(noises) == 2 and [one["kept"] for one in again] == [True, True]
    assert [one["pictures"] for one in again] == [one["pictures"] for one in reversed(first)]
    answered(desk, keys["plain"], seed=4)
    assert len(noises) == 3


def test_a_run_is_opened_once_and_parts_are_shared(desk, keys):
    answered(desk, keys["plain"], keys["hostile"])
    one, two = (desk.models.painters[keys[name], 48][0] for name in ("plain", "hostile"))
    answered(desk, keys["plain"], keys["hostile"], prompt="a star.")
    assert desk.models.painters[keys["plain"], 48][0] is one
    assert one.text is two.text and one.codec is two.codec and one.backbone is not two.backbone


def test_the_training_can_be_looked_back_on(desk, keys):
    seen = [answered(desk, {"key": keys["plain"], "at": at})[0] for at in (1, 8, 23, 48, 1000)]
    assert [answer["images"] for answer in seen] == [8, 8, 16, 48, 48]
    assert ["--at" in answer["command"] for answer in seen] == [True, True, True, False, False]
    first, last = (np.asarray(pictures(desk, answer)[0]) for answer in (seen[0], seen[-1]))
    assert not np.array_equal(first, last)


def test_a_newer_request_of_the_page_ends_the_older_one_in_the_middle_of_a_picture(
    desk, keys, monkeypatch
):
    steps, begun, go_on = [], threading.Event(), threading.Event()
    watched = Painter.watched

    def slow(self, look):
        def slowly():
            look()
            steps.append(self.run.sample.steps)
            begun.set()
            go_on.wait(10)

        return watched(self, slowly)

    monkeypatch.setattr(Painter, "watched", slow)
    older = []
    thread = threading.Thread(
        target=lambda: older.extend(desk.answers(request(keys["plain"], keys["hostile"], steps=50)))
    )
    thread.start()
    assert begun.wait(60)
    newer = desk.answers(request(keys["plain"], prompt="a star.", steps=2))
    waiting = threading.Thread(target=lambda: newer_answers.extend(newer))
    newer_answers = []
    waiting.start()
    while len(desk.newest) != 1 or not steps or desk.waiting._value > drawing_desk.MOST_WAITING - 2:
        time.sleep(0.01)  # until both are there: one draws, one waits for it
    go_on.set()
    thread.join(60)
    waiting.join(60)
    assert older == [{"superseded": True}] and steps.count(50) == 1
    assert newer_answers[0]["steps"] == 2 and newer_answers[-1]["done"] and not desk.newest


def test_another_pages_request_ends_nobodys(desk, keys):
    older = desk.answers(request(keys["plain"], keys["hostile"], page="a"))
    assert "pictures" in next(older)
    assert "pictures" in next(desk.answers(request(keys["plain"], prompt="a star.", page="b")))
    assert "pictures" in next(older) and next(older)["done"]


def test_what_cannot_be_read_is_told(desk, keys):
    [answer] = answered(desk, keys["plain"], prompt="a red wombat, eine Kugel")
    assert answer["notes"] == [
        "words the text encoder does not know, read as 'unknown': eine, kugel, wombat (its words:"
        " docs/pictures.md)"
    ]
    [answer] = answered(desk, keys["plain"], prompt="a red circle.")
    assert answer["notes"] == []
    long = "a red circle. " * 16 + "a blue star"
    [answer] = answered(desk, keys["plain"], prompt=long)
    assert answer["notes"] == ["the text encoder takes 63 words: the rest was cut, '. a blue star'"]
    assert (
        pictures(desk, answer)[0].text["prompt"] == ("a red circle. " * 16)[:-2]
        and "blue" not in answer["command"]
    )
    [answer] = answered(desk, keys["plain"], prompt="立方体")
    assert "holds no word that can be read" in answer["error"]
    [answer] = answered(desk, keys["plain"], prompt="")
    assert answer["pictures"] and answer["notes"] == []


def test_a_fault_of_one_run_leaves_the_others(copied, keys, desk):
    own = drawing_desk.DrawingDesk(
        named_runs([keys["plain"], keys["hostile"], keys["large"]], copied, CATALOG.fillers),
        OpenModels(),
    )
    part = next((copied / keys["plain"] / "checkpoints").glob("*48/model.safetensors"))
    part.write_bytes(part.read_bytes()[:-1] + b"\x7f")
    shutil.rmtree(copied / keys["large"] / "checkpoints")
    answers = answered(own, keys["plain"], keys["hostile"], keys["large"], "0" * 16)
    assert "damaged" in answers[0]["error"] and "pictures" in answers[1]
    assert (
        "its weights are gone" in answers[2]["error"]
        and "not in the gallery" in answers[3]["error"]
    )


def test_few_models_and_pictures_are_kept_where_there_is_little_room(out, keys):
    models = OpenModels(most_bytes=1)
    own = drawing_desk.DrawingDesk(
        named_runs([keys["plain"], keys["hostile"]], out, CATALOG.fillers), models, (), 1
    )
    answers = answered(own, keys["plain"], keys["hostile"])
    assert len(models.painters) == 1 and len(own.columns) == 1
    first, second = (answer["pictures"][0]["id"][:64] for answer in answers)
    assert (
        own.picture(first, 0) is None and own.picture(second, 0) and own.picture(second, 1) is None
    )


def test_too_many_requests_at_once_are_refused(desk, keys, monkeypatch):
    monkeypatch.setattr(desk, "waiting", threading.Semaphore(1))
    first = desk.answers(request(keys["plain"]))
    next(first)
    with pytest.raises(Exception, match="too many"):
        next(desk.answers(request(keys["plain"], page="b")))
    list(first)
    assert answered(desk, keys["plain"])
