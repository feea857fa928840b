"""The page in a real browser: drawn, quiet, offline, usable by keyboard and on a phone, light and dark."""
from __future__ import annotations

import base64
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fulcrum.report import page
from fulcrum.report.schema import StudyResult

FAKE = runpy.run_path(str(Path(__file__).with_name("fake_study.py")))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"]
# Chromium speaks on file descriptors 3 and 4; a little Python puts our pipe there and becomes the browser.
LAUNCH = "import fcntl, os, sys; a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]); " \
         "os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium to run this"),
              pytest.mark.timeout(120)]


class Browser:
    """One tab, driven by the DevTools protocol over a pipe; keeps what the page said and asked for."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        launch = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out)]
        self.process = subprocess.Popen(
            [*launch, CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.into = os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb", buffering=0)
        self.rest, self.count, self.session = b"", 0, None
        self.said: list[str] = []
        self.asked: list[str] = []
        self.loaded = False

    def start(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            chunk = self.into.read(1 << 16)
            assert chunk, "the browser went away"
            self.rest += chunk
        message, _, self.rest = self.rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        method, about = found.get("method", ""), found.get("params", {})
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(json.dumps(about))
        elif method == "Network.requestWillBeSent":
            self.asked.append(about["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True
        return found

    def call(self, method: str, **params: Any) -> Any:
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != message["id"]:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path, width: int = 1200, scheme: str = "light") -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.loaded, self.said, self.asked = False, [], []
        self.call("Page.navigate", url=path.as_uri())
        while not self.loaded:
            self.read()

    def ask(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def picture(self, path: Path) -> bytes:
        size = self.ask("[innerWidth, document.documentElement.scrollHeight]")
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1})["data"]
        path.write_bytes(base64.b64decode(data))
        return path.read_bytes()

    def close(self) -> None:
        self.out.close()
        self.into.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.start()
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write(StudyResult.model_validate(FAKE["fake_study"]()), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Screenshots are kept where FULCRUM_SCREENSHOTS says, else in pytest's own folder."""
    folder = Path(os.environ.get("FULCRUM_SCREENSHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_it_opens_quietly_draws_everything_and_asks_for_nothing(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert browser.ask("[...document.images].length") == 60
    assert browser.ask("[...document.images].every(i => i.complete && i.naturalWidth === 32)")
    assert browser.ask("getComputedStyle(document.images[0]).imageRendering") == "pixelated"
    figures = browser.ask("[...document.querySelectorAll('svg')].map(s => [s.getBoundingClientRect().width,"
                          " s.querySelectorAll('path,rect,circle').length])")
    assert len(figures) == 12 and all(width > 200 and shapes > 2 for width, shapes in figures)
    assert browser.said == []
    assert [url for url in browser.asked if not url.startswith("data:")] == [report.as_uri()]


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_the_page_never_scrolls_sideways(browser: Browser, report: Path, shots: Path, width: int) -> None:
    browser.open(report, width)
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    smallest = browser.ask("Math.min(...[...document.querySelectorAll('svg text')].map("
                           "t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))")
    assert smallest >= 8.5, f"words of {smallest:.1f} px in a figure"
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = false)")
    browser.picture(shots / f"report-{width}.png")


def test_many_arms_with_long_names_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    study = FAKE["fake_study"]()
    for k in range(8):
        arm = {**study["arms"][2], "name": f"muon{k}", "label": f"Muon {k} " + "very_long_name_without_a_space" * 3,
               "phrase": "spark+" + "x" * 200, "cost": {"time_ratio": 1.0 + 0.02 * k}}
        study["arms"].append(arm)
        study["effects"] += [{**row, "arm": arm["name"]} for row in study["effects"] if row["arm"] == "muon"]
    study["title"] = "w" * 120
    study["made"]["command"] = "fulcrum study run " + "y" * 200
    browser.open(page.write(StudyResult.model_validate(study), tmp_path), 320)
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") <= 320


def test_dark_differs_from_light(browser: Browser, report: Path, shots: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    browser.open(report, scheme="dark")
    dark = browser.ask(back)
    browser.picture(shots / "report-dark.png")
    browser.open(report, scheme="light")
    assert dark == "rgb(22, 22, 20)" and browser.ask(back) == "rgb(251, 250, 247)"


def test_the_keyboard_reaches_and_opens_everything(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.press("Tab", 9)
    assert browser.ask("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(60):
        if browser.ask("document.activeElement.tagName") == "SUMMARY":
            break
        seen.add(browser.ask("document.activeElement.tagName + '.' + document.activeElement.className"))
        browser.press("Tab", 9)
    assert {"A.", "DIV.scroll"} <= seen                     # the links, and tables that scroll inside
    assert browser.ask("document.activeElement.parentElement.open") is False
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter", 13, "\r")
    assert browser.ask("document.activeElement.parentElement.open") is True


def test_a_hostile_study_runs_no_script(browser: Browser, tmp_path: Path) -> None:
    study = FAKE["fake_study"]()
    attack = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
    study["title"] = study["arms"][1]["label"] = study["grids"]["prompts"][0] = study["remarks"][0] = attack
    browser.open(page.write(StudyResult.model_validate(study), tmp_path))
    assert browser.ask("document.title") == attack and browser.ask("document.images.length") == 60
    assert browser.said == []


def test_a_running_study_shows_its_progress(browser: Browser, tmp_path: Path, shots: Path) -> None:
    browser.open(page.write(StudyResult.model_validate(FAKE["running_study"]()), tmp_path))
    assert browser.ask("document.querySelector('progress').position").__round__(3) == 0.333
    assert browser.ask("[...document.images].every(i => i.naturalWidth === 32)") and browser.said == []
    browser.picture(shots / "report-running.png")
