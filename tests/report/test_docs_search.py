"""The site's search runs in a worker; opened as a file, a page gets a frame in its place, which
answers as one."""

from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Browser

SHIM = Path(__file__).parents[2] / "docs/site/iframe-worker.js"
WORKER = """
let ready = importScripts("more.js")
addEventListener("message", async event => { await ready; postMessage(twice(event.data)) })
"""
PAGE = """<!doctype html><body><script src="shim.js"></script><script>
window.heard = []
const worker = new Worker("worker.js")
worker.addEventListener("message", event => heard.push(event.data))
worker.postMessage("before it is loaded")
setTimeout(() => worker.postMessage("after"), 300)
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_frame_answers_in_the_place_of_a_worker(tmp_path):
    (tmp_path / "shim.js").write_bytes(SHIM.read_bytes())
    (tmp_path / "worker.js").write_text(WORKER)
    (tmp_path / "more.js").write_text("const twice = text => text + text")
    (tmp_path / "page.html").write_text(PAGE)
    browser = Browser(tmp_path / "profile")
    try:
        browser.start()
        browser.open(tmp_path / "page.html")
        browser.wait("heard.length == 2")
        assert browser.ask("heard") == ["before it is loaded" * 2, "after" * 2] and not browser.said
    finally:
        browser.close()
