"""What hangs in the gallery: named runs or a study's arms; what cannot be shown is named with its
reason."""

import json
import shutil
import socket
import threading
from pathlib import Path

import pytest

from fulcrum.cli import main
from fulcrum.cli.gallery.runs import arms_of, named_runs
from fulcrum.judge import page
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.studies.plan_file import load
from fulcrum.studies.study import run
from tests.cells_here import all_here
from tests.gallery.conftest import desk_of

SMALL = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "sample.steps=2",
)
PLAN = f"""
title = "Small <b>study</b>"
baseline = "spark"
arms = ["short_captions"]
seeds = [0, 1]
images = 48
settings = {json.dumps(SMALL)}
samples = 64
compile = false
keep_checkpoints = 2
"""


def refused(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(["gallery", *map(str, words)])
    assert end.value.code == 2
    return capsys.readouterr().err


def hung(names, out):
    return named_runs(names, out, CATALOG.fillers)


def test_runs_are_found_by_key_folder_or_all_of_them(out, keys):
    assert [
        one.key
        for one in hung([keys["plain"][:6], str(out / keys["large"]), keys["plain"]], out).exhibits
    ] == [
        keys["plain"],
        keys["large"],
    ]
    every = hung((), out)
    assert {one.key for one in every.exhibits} == set(
        keys.values()
    ) and every.title == "4 runs side by side"


def test_an_unfinished_run_says_so_and_unlike_sizes_are_known(out, keys):
    facts = {one.key: one.facts() for one in hung((), out).exhibits}
    assert (
        facts[keys["stopped"]]["state"] == "not finished: at 48 of 48 images"
        and not facts[keys["plain"]]["state"]
    )
    assert facts[keys["plain"]]["points"] == [8, 16, 24, 32, 40, 48]
    assert (
        facts[keys["plain"]]["noise"]
        == facts[keys["hostile"]]["noise"]
        != facts[keys["large"]]["noise"]
    )


def test_runs_that_cannot_be_drawn_with_are_named(copied, keys):
    shutil.rmtree(copied / keys["stopped"] / "checkpoints")
    about = copied / keys["large"] / "about.json"
    about.write_text(about.read_text().replace('"kl_codec"', '"nonsense"'))
    (copied / keys["hostile"] / "about.json").write_text("{}")
    collection = hung([keys[name] for name in ("plain", "stopped", "large", "hostile")], copied)
    assert [one.key for one in collection.exhibits] == [keys["plain"]]
    reasons = {one.name: one.reason for one in collection.absent}
    assert (
        "no checkpoint yet" in reasons[keys["stopped"][:8]]
        and "nonsense" in reasons[keys["large"][:8]]
    )
    assert "not the description of a run" in reasons[keys["hostile"][:8]]
    shutil.rmtree(copied / keys["plain"] / "checkpoints")
    shutil.rmtree(copied / keys["plain"] / "kept")
    with pytest.raises(BadInput, match="none of the runs can be drawn with"):
        hung((), copied)


def test_no_runs_a_port_in_use_and_words_that_do_not_fit(out, keys, tmp_path, capsys):
    assert "no runs under" in refused(capsys, "--out", tmp_path)
    assert "whose key begins with 'ffff'" in refused(capsys, "ffff", "--out", out)
    assert "leave out the runs" in refused(capsys, keys["plain"], "--study", tmp_path, "--out", out)
    assert "add --study" in refused(capsys, "--seed", 1, "--out", out)
    assert "holds no study's result" in refused(capsys, "--study", tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "cannot be used" in refused(capsys, keys["plain"], "--out", out, "--port", port)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A small study, run here with its plan beside it."""
    place = tmp_path_factory.mktemp("studied")
    plan, out = place / "plan.toml", place / "runs"
    plan.write_text(PLAN)
    with pytest.MonkeyPatch.context() as patch:
        all_here(patch)
        result, written = run(
            load(plan), CATALOG, out, f"fulcrum study run {plan} --out {out}", lambda text: None
        )
    return plan, out, result, written


def test_a_studys_arms_hang_under_one_seed(studied):
    plan, out, result, written = studied
    collection = arms_of(written.parent, None, CATALOG.fillers)
    cells = {arm.label: arm.cells[0].key for arm in result.arms}
    assert {one.name: one.key for one in collection.exhibits} == cells
    assert (
        collection.exhibits[0].name == result.baseline.label
        and collection.exhibits[0].colour == "arm-0"
    )
    assert [
        one.folder.about()["seed"] for one in arms_of(written.parent, 1, CATALOG.fillers).exhibits
    ] == [1, 1]
    # two kept, two checkpoints
    assert [one.facts()["points"] for one in collection.exhibits] == [[16, 32, 40, 48]] * 2
    assert load(plan).hash == load(plan).model_copy(update={"keep_checkpoints": 0}).hash
    with pytest.raises(BadInput, match="no cells of seed 5"):
        arms_of(written.parent, 5, CATALOG.fillers)


def test_an_arm_whose_run_is_not_there_is_named(studied, tmp_path):
    _, out, result, written = studied
    copy = shutil.copytree(out, tmp_path / "runs")
    shutil.rmtree(copy / result.arms[1].cells[0].key)
    collection = arms_of(copy / written.parent.name, 0, CATALOG.fillers)
    assert [one.name for one in collection.exhibits] == [result.baseline.label]
    assert [(one.name, one.reason) for one in collection.absent] == [
        (result.arms[1].label, "no run of seed 0 lies beside the study")
    ]


def test_the_studys_page_tells_the_command_and_links_only_where_they_lead_somewhere(
    studied, serve, ask
):
    plan, out, result, written = studied
    command = f"fulcrum gallery --study {plan} --out {out}"
    html = written.read_text()
    assert command in html and 'href="/' not in html
    with serve(desk_of(arms_of(written.parent, None, CATALOG.fillers), out)) as server:
        status, headers, served = ask(server, "GET", "/study")
        # a running study's page tells by it whether it is still heard of
        assert headers["Last-Modified"]
        assert (
            status == 200 and b'<a href="/?prompt=' in served and b"fulcrum gallery" not in served
        )
        assert served.count(b"Draw it in the gallery") == len(result.grids.prompts)
        front = ask(server, "GET", "/")[2]
        assert (
            b'href="/study"' in front
            and b"<b>study</b>" not in front
            and b"&lt;b&gt;study" in front
        )
    assert page.render(result).count("fulcrum gallery") == 1


def test_the_command_opens_a_study_by_its_plan_and_ends_quietly(studied, capsys, monkeypatch):
    from fulcrum.judge import serve as loopback

    plan, out, result, _ = studied
    served = []

    def once(server, ready):
        with server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            ready(loopback.address(server))
            served.append(server.server_address)
            server.shutdown()
            thread.join()

    monkeypatch.setattr("fulcrum.cli.gallery.server.until_stopped", once)
    with pytest.raises(SystemExit) as end:
        main(
            [
                "gallery",
                "--study",
                str(plan),
                "--out",
                str(out),
                "--port",
                "0",
                "--json",
                "--threads",
                "1",
            ]
        )
    printed = capsys.readouterr()
    assert not end.value.code and served
    answer = json.loads(printed.out)
    assert answer["gallery"].startswith("http://127.0.0.1:") and len(answer["runs"]) == 2
    assert "Small <b>study</b>, seed 0" in printed.err
    assert Path(out, answer["runs"][0]).is_dir()
