"""One tab of a real Chromium, driven by the DevTools protocol over a pipe, for tests."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]
# Chromium speaks on file descriptors 3 and 4; a little Python puts our pipe there and becomes the
# browser.
LAUNCH = (
    "import fcntl, os, sys; a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]);"
    " os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
# Every visible text with its contrast against what lies under it, as WCAG counts it.
CONTRASTS = """(() => {
  const parse = c => {
    const m = c.match(/[\\d.]+/g).map(Number);
    return m.length > 3 ? m : [...m, 1]; };
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const lum = c => {
    const [r, g, b] = c.map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b; };
  const under = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > .99) return c; }
    return [255, 255, 255, 1]; };
  const silent = ["SCRIPT", "STYLE", "TITLE", "title", "desc"];
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; n = walk.nextNode();) {
    const e = n.parentElement, box = e.getBoundingClientRect();
    if (!n.data.trim() || !box.width || silent.includes(e.tagName)) continue;
    const s = getComputedStyle(e), ink = parse(e.closest("svg") ? s.fill : s.color);
    const [a, b] = [lum(ink), lum(under(e))];
    out.push([(Math.max(a, b) + .05) / (Math.min(a, b) + .05), n.data.trim().slice(0, 40)]);
  }
  return out; })()"""


class Browser:
    """One tab, driven by the DevTools protocol over a pipe; keeps what the page said and asked
    for."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        launch = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out)]
        self.process = subprocess.Popen(
            [*launch, CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.into = (
            os.fdopen(ours_out, "wb", buffering=0),
            os.fdopen(ours_in, "rb", buffering=0),
        )
        self.rest, self.count, self.session = b"", 0, None
        self.said: list[str] = []
        self.asked: list[str] = []
        self.loaded = False

    def start(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            chunk = self.into.read(1 << 16)
            assert chunk, "the browser went away"
            self.rest += chunk
        message, _, self.rest = self.rest.partition(b"\0")
        content: dict[str, Any] = json.loads(message)
        method, about = content.get("method", ""), content.get("params", {})
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(json.dumps(about))
        elif method == "Network.requestWillBeSent":
            self.asked.append(about["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True
        return content

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

    def open(self, page: Path | str, width: int = 1200, scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.loaded, self.said, self.asked = False, [], []
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        while not self.loaded:
            self.read()

    def hurry(self, times: int) -> str:
        """Timers of pages opened from now on run so many times faster; returns what `unhurry`
        takes."""
        source = f"const slow = setTimeout; window.setTimeout = (f, ms) => slow(f, ms / {times});"
        return str(self.call("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"])

    def unhurry(self, ident: str) -> None:
        self.call("Page.removeScriptToEvaluateOnNewDocument", identifier=ident)

    def wait(self, script: str, seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not self.asked_between_pages(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.02)

    def asked_between_pages(self, script: str) -> Any:
        """The answer, or None of a page that was just being exchanged for another."""
        try:
            return self.ask(script)
        except AssertionError as error:
            if "navigated or closed" not in str(error):
                raise
            return None

    def ask(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def picture(self, path: Path) -> bytes:
        size = self.ask("[innerWidth, document.documentElement.scrollHeight]")
        data = self.call(
            "Page.captureScreenshot",
            captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1},
        )["data"]
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
