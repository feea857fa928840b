"""The page in a real browser: drawn, quiet, offline, usable by keyboard and on a phone, light and
dark, live."""

from __future__ import annotations

import os
import runpy
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fulcrum.judge import page, serve
from fulcrum.judge.page import beating
from fulcrum.judge.schema import StudyResult

HERE = Path(__file__).parent
FAKE, RICH, HONEST = (
    runpy.run_path(str(HERE / f"fake_{name}.py")) for name in ("study", "rich", "honest")
)
DRIVER = runpy.run_path(str(HERE.parent / "browser.py"))
SHOTS = HERE.parents[1] / "build" / "screenshots"  # git ignores it
pytestmark = [
    pytest.mark.skipif(
        DRIVER["CHROMIUM"] is None, reason="no Chromium here: apt-get install chromium"
    ),
    pytest.mark.timeout(120),
]
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
CONTRASTS = DRIVER["CONTRASTS"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    browser = DRIVER["Browser"](tmp_path_factory.mktemp("profile"))
    try:
        browser.start()
        yield browser
    finally:
        browser.close()


def written(study: dict[str, Any], folder: Path) -> Path:
    return page.write(StudyResult.model_validate(study), folder)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(FAKE["fake_study"](), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(RICH["rich_study"](), tmp_path_factory.mktemp("rich"))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(HONEST["honest_study"](), tmp_path_factory.mktemp("honest"))


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(RICH["scaled_study"](), tmp_path_factory.mktemp("scaled"))


@pytest.fixture(scope="module")
def shots() -> Path:
    """Screenshots are kept where FULCRUM_SCREENSHOTS says, else under build/, which git ignores."""
    folder = Path(os.environ.get("FULCRUM_SCREENSHOTS") or SHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize(
    "name, pictures, figures",
    [("report", 60, 18), ("rich", 132, 39), ("honest", 132, 39), ("scaled", 0, 44)],
)
def test_it_opens_quietly_draws_everything_and_asks_for_nothing(
    browser: Any, name: str, pictures: int, figures: int, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(name)
    browser.open(path)
    browser.ask(OPEN_ALL)
    assert browser.ask("[...document.images].length") == pictures
    assert browser.ask(
        "[...document.images].every(i => i.complete && i.naturalWidth === 32 && i.alt &&"
        " i.getBoundingClientRect().width > 60 && getComputedStyle(i).imageRendering ==="
        " 'pixelated')"
    )
    drawn = browser.ask(
        "[...document.querySelectorAll('svg')].map(s => [s.getBoundingClientRect().width,"
        " s.querySelectorAll('path,rect,circle,line').length,"
        " s.querySelector('title').textContent])"
    )
    assert len(drawn) == figures and all(
        width > 200 and shapes > 1 and title for width, shapes, title in drawn
    )
    assert browser.said == []
    assert [url for url in browser.asked if not url.startswith("data:")] == [path.as_uri()]


@pytest.mark.parametrize(
    "width, name",
    [
        (320, "rich"),
        (320, "honest"),
        (320, "scaled"),
        (390, "report"),
        (768, "honest"),
        (1200, "rich"),
        (1200, "honest"),
        (1000, "scaled"),
    ],
)
def test_the_page_never_scrolls_sideways(
    browser: Any, shots: Path, width: int, name: str, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(name), width)
    if width in (320, 1200):
        browser.picture(shots / f"{name}-{width}.png")
    browser.ask(OPEN_ALL)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    smallest = browser.ask(
        "Math.min(...[...document.querySelectorAll('svg text')].map("
        "t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))"
    )
    assert smallest >= 8.5, f"words of {smallest:.1f} px in a figure"


def test_the_ranking_begins_on_the_first_screen_of_a_phone_and_says_what_it_shows(
    browser: Any, rich: Path
) -> None:
    browser.open(rich, 390)
    assert (
        browser.ask("document.querySelector('.board tbody tr').getBoundingClientRect().bottom")
        < 844
    )
    assert "equal images: mean [95 % interval]" in browser.ask(
        "document.querySelector('.over').innerText"
    )
    smallest = browser.ask(
        "Math.min(...[...document.querySelectorAll('.board tbody *')].filter(e => e.innerText).map("
        "e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 12, f"words of {smallest:.1f} px in the ranking"
    browser.open(rich, 1280)
    assert (
        browser.ask("document.querySelector('.board tbody tr').getBoundingClientRect().bottom")
        < 844
    )
    # there its columns say it
    assert browser.ask("getComputedStyle(document.querySelector('.over')).display") == "none"


def test_many_arms_with_long_names_fit_a_phone(browser: Any, tmp_path: Path) -> None:
    study = FAKE["fake_study"]()
    for k in range(8):
        arm = {
            **study["arms"][2],
            "name": f"muon{k}",
            "label": f"Muon {k} " + "very_long_name_without_a_space" * 3,
            "phrase": "spark+" + "x" * 200,
            "cost": {"time_ratio": 1.0 + 0.02 * k},
        }
        study["arms"].append(arm)
        study["effects"] += [
            {**row, "arm": arm["name"]} for row in study["effects"] if row["arm"] == "muon"
        ]
    study["title"] = "w" * 120
    study["made"]["command"] = "fulcrum study run " + "y" * 200
    path = written(study, tmp_path)
    for width in (320, 1200):
        browser.open(path, width)
        browser.ask(OPEN_ALL)
        assert browser.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser: Any, honest: Path, shots: Path, scheme: str) -> None:
    browser.open(honest, scheme=scheme)
    browser.ask(OPEN_ALL)
    contrasts = browser.ask(CONTRASTS)
    assert len(contrasts) > 500
    assert [one for one in contrasts if one[0] < 4.5] == []
    back = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert back == {"dark": "rgb(22, 22, 20)", "light": "rgb(251, 250, 247)"}[scheme]
    browser.picture(shots / f"honest-{scheme}.png")


def test_the_keyboard_reaches_and_opens_everything(browser: Any, rich: Path) -> None:
    browser.open(rich)
    browser.press("Tab", 9)
    assert browser.ask("document.activeElement.className") == "skip"
    browser.press("Enter", 13, "\r")
    assert browser.ask("location.hash") == "#answer"
    sections, summaries, outlined = set(), set(), True
    for _ in range(200):
        browser.press("Tab", 9)
        at = browser.ask(
            "(() => { const e = document.activeElement; return [e.tagName, (e.closest('section') ||"
            " {}).id, e.parentElement.id, getComputedStyle(e).outlineStyle]; })()"
        )
        if at[0] == "BODY":
            break
        sections.add(at[1])
        outlined = outlined and at[3] == "solid"
        if at[0] == "SUMMARY":
            summaries.add(at[2])
            if browser.ask("!document.activeElement.parentElement.open"):
                browser.press("Enter", 13, "\r")
                assert browser.ask("document.activeElement.parentElement.open"), at
    assert outlined, "focus without an outline"
    # Remarks hold nothing to operate; every other section is reached.
    assert (
        set(browser.ask("[...document.querySelectorAll('section')].map(s => s.id)")) - {"remarks"}
        <= sections
    )
    assert summaries == set(browser.ask("[...document.querySelectorAll('details')].map(d => d.id)"))


def test_a_row_of_the_ranking_leads_to_its_lever_and_opens_it(browser: Any, rich: Path) -> None:
    browser.open(rich)
    last = "[...document.querySelectorAll('.board a')].at(-1)"
    target = browser.ask(f"{last}.hash.slice(1)")
    closed = f"document.getElementById('{target}').closest('details').open"
    assert browser.ask(closed) is False
    browser.ask(f"{last}.focus()")
    browser.press("Enter", 13, "\r")
    browser.wait(closed)


def test_a_hostile_study_runs_no_script(browser: Any, tmp_path: Path) -> None:
    attack = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    for name in ("fake_study", "running_study"):
        study = FAKE[name]()
        study["title"] = study["arms"][1]["label"] = study["grids"]["prompts"][0] = study[
            "remarks"
        ][0] = attack
        browser.open(written(study, tmp_path))
        assert browser.ask("document.title") == attack and browser.said == []


def test_a_running_study_shows_its_progress(browser: Any, tmp_path: Path, shots: Path) -> None:
    browser.open(written(FAKE["running_study"](), tmp_path))
    assert browser.ask("document.querySelector('progress').position").__round__(3) == 0.333
    assert (
        browser.ask("[...document.images].every(i => i.naturalWidth === 32)") and browser.said == []
    )
    browser.picture(shots / "running.png")


def test_a_served_page_renews_itself_and_keeps_the_readers_place(
    browser: Any, tmp_path: Path
) -> None:
    study = FAKE["running_study"]()
    written(study, tmp_path)
    with serve.open_server(tmp_path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hurry = browser.hurry(25)
        try:
            browser.open(serve.address(server))
            browser.ask(
                "document.getElementById('d-keys').open = true; window.same ="
                " true;document.getElementById('d-cells-now').open ="
                " false;document.querySelector('#d-keys summary').focus(); scrollTo({top: 1500,"
                " behavior: 'instant'})"
            )
            study["progress"]["done"] = 9
            written(study, tmp_path)
            browser.wait("document.querySelector('progress').value === 9")
            assert browser.ask("window.same && document.getElementById('d-keys').open") is True
            assert browser.ask("document.getElementById('d-cells-now').open") is False
            assert abs(browser.ask("scrollY") - 1500) < 2
            assert browser.ask("document.activeElement.parentElement.id") == "d-keys"
            with beating(tmp_path):
                pass  # it ran here, and runs no more
            browser.wait("document.querySelector('header').dataset.state === 'stopped'")
            assert "last heard of" in browser.ask("document.querySelector('.progress').innerText")
            study.update(state="running")
            written(study, tmp_path)
            (tmp_path / "running.lock").unlink()
            browser.open(serve.address(server))
            study.update(state="finished")
            written(study, tmp_path)
            browser.wait("document.querySelector('header').dataset.state === 'finished'")
            asked = len(browser.asked)
            time.sleep(0.5)
            assert browser.ask("1") == 1 and len(browser.asked) == asked, (
                "a finished page still asks"
            )
            assert (
                all(url.startswith((serve.address(server), "data:")) for url in browser.asked)
                and browser.said == []
            )
        finally:
            browser.unhurry(hurry)
            server.shutdown()
            thread.join()


def test_a_page_that_is_not_touched_any_more_says_so(
    browser: Any, tmp_path: Path, shots: Path
) -> None:
    path = written(FAKE["running_study"](), tmp_path)
    hurry = browser.hurry(10)
    try:
        browser.open(path)
        assert browser.ask(
            "[document.getElementById('silent').hidden,"
            " document.getElementById('state').textContent]"
        ) == [
            True,
            "running",
        ]
        os.utime(path, (time.time() - 3 * 3600 - 600,) * 2)  # it was killed
        browser.wait(
            "document.getElementById('silent') && !document.getElementById('silent').hidden"
        )
        assert "for 3 h 10 min: it was stopped" in browser.ask(
            "document.getElementById('silent').innerText"
        )
        assert (
            browser.ask("document.getElementById('state').textContent") == "not heard of"
            and browser.said == []
        )
        browser.unhurry(hurry)
        browser.open(path)  # a picture of a page that is loaded anew meanwhile would never come
        browser.picture(shots / "silent.png")
        hurry = browser.hurry(10)
        browser.open(path)
        os.utime(path)  # it was only asleep
        browser.wait(
            "document.getElementById('silent') && document.getElementById('silent').hidden"
        )
    finally:
        browser.unhurry(hurry)
        browser.open("about:blank")


def test_a_page_on_disk_renews_itself_and_keeps_the_readers_place(
    browser: Any, tmp_path: Path
) -> None:
    study = FAKE["running_study"]()
    path = written(study, tmp_path)
    hurry = browser.hurry(10)
    try:
        browser.open(path)
        browser.ask(
            "document.getElementById('d-keys').open = true; scrollTo({top: 1200, behavior:"
            " 'instant'})"
        )
        study["progress"]["done"] = 10
        written(study, tmp_path)
        browser.wait(
            "document.querySelector('progress') && document.querySelector('progress').value === 10"
        )
        browser.wait(
            "document.readyState === 'complete' && document.getElementById('d-keys').open &&"
            " Math.abs(scrollY - 1200) < 2"
        )
    finally:
        browser.unhurry(hurry)
        browser.open("about:blank")
