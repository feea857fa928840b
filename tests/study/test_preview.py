"""Previews cost a run at most their share: fewer pictures are drawn, which is said once. A person
says what and when."""

import json
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from fulcrum.levers.recipes import spark
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview as module
from fulcrum.measure.preview import SHOWN, Looks, Preview, PreviewPlan, previewing
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.checkpoint import State
from fulcrum.training.session import Order, perform


def test_pictures_are_left_out_where_looks_would_take_too_long(monkeypatch) -> None:
    run, lines, drawn = spark(), [], []
    built = SimpleNamespace(
        run=run,
        feed=SimpleNamespace(tell=lines.append, cache=SimpleNamespace(quiet=False)),
        step=None,
        average=None,
        ranks=None,
    )
    monkeypatch.setattr(module, "shared_weights", lambda step, average, ranks: {})
    preview = Preview.__new__(Preview)
    preview.wanted, preview.picture_seconds, preview.said = [""] * SHOWN, 0.1, False
    # resumed: that time is past
    looks = Looks(curve=lambda look, weights: None, preview=None, state=State(seconds=50.0))

    def draw(look, weights, seconds):
        drawn.append(preview.affordable(look, seconds))
        return 0.1 * drawn[-1]

    draw.collapse = ""
    looks.preview = draw
    for share, seconds in ((0.2, 70.0), (0.4, 80.2), (0.6, 83.6), (1.0, 83.7)):
        look = SimpleNamespace(
            built=built, state=State(round(share * run.budget.images), seconds=seconds)
        )
        looks.at(curve=True, pictures=True)(look)
    # 5 % of 20 s; of 30.2 s, less 0.8 s: 0.71 s; of 33.6 s, less 1.5 s: 0.18 s; of 33.7 s, less 1.6
    # s: 0.085 s
    assert drawn == [8, 7, 1, 1]
    assert (
        len(lines) == 1
        and "5%" in lines[0]
        and "7 of 8 preview pictures are drawn after" in lines[0]
    )
    preview.said, early = False, SimpleNamespace(built=built, state=State(64, seconds=83.7))
    assert (
        preview.affordable(early, 0.01) == 0
        and "no preview picture is drawn after 64 images" in lines[-1]
    )
    assert looks.spent <= 0.05 * 33.7 + 0.1, "only the end, which is always shown, may lie above"


def order(run, out):
    return Order(run, 0, "spark", out, System(), quiet=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def out(runs, monkeypatch):
    monkeypatch.setattr(run_evaluation, "VALIDATION", 16)  # the same acts, fewer pictures
    return runs


def test_own_prompts_at_an_interval(tiny, out, monkeypatch):
    monkeypatch.setattr(module, "SHARE", 1000.0)  # a run of a moment: nothing is spared
    plan = PreviewPlan(("a red circle", "a blue ring at the left. " * 8), 24)
    result = perform(
        order(tiny("spark", "optim.lr=0.011"), out), lambda text: None, previewing(plan)
    )
    folder = out / result["key"]
    assert [int(path.stem) for path in sorted((folder / "previews").iterdir())] == [24, 48]
    with Image.open(folder / "previews" / f"{48:012d}.png") as sheet:
        assert sheet.width > 2 * 32 * 4 and sheet.height > 32 * 4 + 6 * 10, (
            "two pictures over their captions"
        )
    curve = [
        json.loads(line)["images"] for line in (folder / "curve.jsonl").read_text().splitlines()
    ]
    assert curve[-1] == 48 and len(curve) > 2, "the held-out curve keeps its own pace"


def test_previews_can_be_off(tiny, out):
    result = perform(
        order(tiny("spark", "optim.lr=0.012"), out),
        lambda text: None,
        previewing(PreviewPlan(every=0)),
    )
    assert (
        not (out / result["key"] / "previews").exists()
        and (out / result["key"] / "curve.jsonl").is_file()
    )


def test_a_prompt_that_cannot_be_read_is_said_before_the_first_step(tiny, out):
    run = tiny("spark", "optim.lr=0.013")
    with pytest.raises(BadInput, match="a preview's prompt: .*no word that can be read"):
        perform(order(run, out), lambda text: None, previewing(PreviewPlan(("???",))))


def test_a_long_prompt_is_cut_and_told(tiny, out):
    lines = []
    perform(
        order(tiny("spark", "optim.lr=0.014"), out),
        lines.append,
        previewing(PreviewPlan(("red " * 80,))),
    )
    assert (
        "previews: 1 prompt is longer than 63 words: the rest was cut, 'red red red"
        in "\n".join(lines)
    )


def test_a_gpu_without_room_for_pictures_trains_on(tiny, out, monkeypatch):
    """A whole model beside the training: of a large one there may be no room. Nothing is computed
    from previews."""

    class Painter:
        def __init__(self, *parts):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 28.00 GiB")

    monkeypatch.setattr(module, "Painter", Painter)
    monkeypatch.setattr(module, "SHARE", 1000.0)
    lines, plan = [], PreviewPlan(("a red circle",), 24)
    result = perform(order(tiny("spark", "optim.lr=0.015"), out), lines.append, previewing(plan))
    assert result["images"] == 48 and not (out / result["key"] / "previews").exists()
    assert [line for line in lines if "no room for previews" in line] == [
        f"the GPU has no room for previews beside the training: none at {images} images; the run"
        " goes on"
        for images in (24, 48)
    ]
    assert (out / result["key"] / "curve.jsonl").exists(), "the held-out loss is told all the same"
