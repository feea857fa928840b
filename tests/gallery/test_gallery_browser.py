"""The gallery in a real browser: by keyboard, on a phone, light and dark; it runs no script but its
own."""

import os
import runpy
from pathlib import Path

import pytest

from fulcrum.judge.serve import address

HERE = Path(__file__).parent
DRIVER = runpy.run_path(str(HERE.parent / "browser.py"))
SHOTS = HERE.parents[1] / "build" / "screenshots"  # git ignores it
pytestmark = [
    pytest.mark.skipif(
        DRIVER["CHROMIUM"] is None, reason="no Chromium here: apt-get install chromium"
    ),
    pytest.mark.timeout(180),
]
STATUS = "document.getElementById('status').textContent"
PICTURES = "[...document.querySelectorAll('#wall img')]"
SETTLED = f"/in .* s, seed/.test({STATUS}) && {PICTURES}.every(i => i.complete)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = DRIVER["Browser"](tmp_path_factory.mktemp("profile"))
    try:
        browser.start()
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def shots():
    folder = Path(os.environ.get("FULCRUM_SCREENSHOTS") or SHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def shown(served, keys, browser):
    """Opens the gallery, waits until it has drawn, and tells its address."""

    def open_page(names=("plain", "hostile"), more="", width=1200, scheme="light"):
        url = f"{address(served)}?runs={'.'.join(keys[name][:8] for name in names)}{more}"
        browser.open(url, width, scheme)
        browser.wait(SETTLED, 60)
        return address(served)

    return open_page


def type_in(browser, text):
    browser.call("Input.insertText", text=text)


def key(browser, name, code):
    browser.press(name, code, "\r" if name == "Enter" else " " if name == " " else "")


def to(browser, place):
    """Tab on until this element has the focus, as a person without a mouse would."""
    for _ in range(60):
        if browser.ask(f"document.activeElement.matches({place!r})"):
            return
        key(browser, "Tab", 9)
    raise AssertionError(f"the keyboard never reached {place}")


def sources(browser):
    return browser.ask(f"{PICTURES}.map(i => i.src)")


def test_it_draws_at_once_asks_only_its_server_and_says_nothing(browser, shown, keys):
    place = shown()
    assert (
        browser.ask(f"{PICTURES}.every(i => i.naturalWidth === 128)") and len(sources(browser)) == 2
    )
    assert (
        browser.ask("document.getElementById('prompt').value")
        == "a large red circle at the top left."
    )
    assert browser.ask(
        f"{PICTURES}.every(i => i.alt.includes('a large red circle at the top left.'))"
    )
    assert browser.ask(f"getComputedStyle({PICTURES}[0]).imageRendering") == "pixelated"
    assert all(url.startswith((place, "data:")) for url in browser.asked) and browser.said == []


def test_the_keyboard_does_everything(browser, shown, keys, shots):
    shown()
    first = sources(browser)
    to(browser, ".skip")
    key(browser, "Tab", 9)
    assert browser.ask("document.activeElement.id") == "prompt"
    browser.ask("document.activeElement.select()")
    type_in(browser, "a small blue wombat.")
    key(browser, "Enter", 13)
    browser.wait(
        f"{SETTLED} && document.getElementById('wall').dataset.prompt === 'a small blue wombat.'",
        60,
    )
    assert "wombat (its words" in browser.ask("document.getElementById('notes').innerText")
    assert not set(first) & set(sources(browser))
    second = sources(browser)

    to(browser, "#guidance")
    key(browser, "ArrowRight", 39)
    browser.wait(f"{SETTLED} && {PICTURES}[0].src !== {second[0]!r}", 60)
    value = browser.ask("document.getElementById('guidance').value")
    assert browser.ask("document.getElementById('guidance-own').checked") is False
    assert f"guidance {value}" in browser.ask("document.querySelector('.drawn').innerText")
    assert (
        browser.ask("document.getElementById('guidance').getAttribute('aria-valuetext')") == value
    )
    key(browser, "Tab", 9)
    key(browser, " ", 32)  # each run's own again: kept, not drawn anew
    browser.wait(f"{PICTURES}[0].src === {second[0]!r}", 60)

    to(browser, "#steps")
    key(browser, "ArrowRight", 39)
    browser.wait(f"{SETTLED} && document.querySelector('.drawn').innerText.includes('3 steps')", 60)
    to(browser, "#at")
    key(browser, "Home", 36)
    browser.wait(
        f"{SETTLED} && document.querySelector('.drawn').innerText.includes('8 images seen')", 60
    )
    assert browser.ask("document.getElementById('at').getAttribute('aria-valuetext')") == "8 images"
    key(browser, "ArrowRight", 39)
    browser.wait(
        f"{SETTLED} && document.querySelector('.drawn').innerText.includes('16 images seen')", 60
    )
    to(browser, "#another")
    key(browser, "Enter", 13)
    browser.wait(f"{SETTLED} && document.getElementById('seed').value !== '0'", 60)
    to(browser, "#count")
    key(browser, "ArrowUp", 38)
    browser.wait(f"{SETTLED} && {PICTURES}.length === 4", 60)
    assert browser.ask(f"{PICTURES}[1].alt").endswith(", picture 2")
    to(browser, f"input[value='{keys['large']}']")
    key(browser, " ", 32)
    browser.wait(f"{SETTLED} && {PICTURES}.length === 6", 60)
    assert "unlike size" in browser.ask("document.getElementById('notes').innerText")
    to(browser, "a[download]")
    assert browser.ask("document.activeElement.download").endswith(".png")
    key(browser, "Tab", 9)
    label = browser.ask("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("Copy command of spark, seed 0")
    browser.picture(shots / "gallery-keyboard.png")


def test_focus_is_always_seen_and_in_reading_order(browser, shown):
    shown()
    to(browser, ".skip")
    order = []
    for _ in range(60):
        at = browser.ask(
            "(() => { const e = document.activeElement; return [e.id || e.className || e.name,"
            " getComputedStyle(e).outlineStyle, (e.labels && e.labels.length) || e.innerText]; })()"
        )
        order.append(at)
        key(browser, "Tab", 9)
        if browser.ask(
            "document.activeElement === document.body || document.activeElement.matches('.skip')"
        ):
            break
    names = [row[0] for row in order]
    assert names[:4] == ["skip", "prompt", "main", "try"] and names[-1] == "act"
    assert names.index("guidance") < names.index("at") < names.index("run")
    assert all(outline != "none" for _, outline, _ in order) and all(
        label for _, _, label in order
    ), order


def test_a_command_can_be_copied_or_is_shown_to_be(browser, shown, keys):
    shown()
    browser.ask(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async t => {"
        " window.copied = t; }}})"
    )
    browser.ask("document.querySelector('button.act').click()")
    browser.wait("window.copied !== undefined")
    assert keys["plain"] in browser.ask("window.copied") and browser.ask(
        "window.copied"
    ).startswith("fulcrum sample ")
    browser.wait("document.querySelector('button.act').textContent === 'Copied'")
    shown()
    browser.ask(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async t => { throw 0;"
        " }}})"
    )
    browser.ask("document.querySelector('button.act').click()")
    browser.wait("document.activeElement.id === 'command'")
    assert browser.ask("document.getElementById('command').value").startswith("fulcrum sample ")


def test_what_is_shown_can_be_kept_as_an_address(browser, shown, keys):
    shown(("hostile",), "&prompt=a%20star.&seed=5&guidance=4&steps=3&at=16&count=2")
    pictures = sources(browser)
    drawn = browser.ask("document.querySelector('.drawn').innerText")
    assert len(pictures) == 2 and "16 images seen · guidance 4 · 3 steps" in drawn
    assert "seed 5" in browser.ask(STATUS)
    browser.open(browser.ask("location.href"))
    browser.wait(SETTLED, 60)
    assert sources(browser) == pictures
    shown(("plain",), "&seed=x&guidance=1e9&steps=-4&at=zero&count=99&prompt=" + "a" * 3000)
    assert (
        len(sources(browser)) == 8
        and browser.ask("document.getElementById('prompt').value.length") == 2000
    )


def test_hostile_names_and_prompts_are_text(browser, shown, keys):
    attack = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E%3C/script%3E"
    shown(("plain", "hostile"), f"&prompt={attack}")
    assert (
        browser.ask("document.title") == "Gallery: 4 runs side by side"
        and len(sources(browser)) == 2
    )
    assert "<img src=x" in browser.ask("document.querySelectorAll('.shown h2')[1].textContent")
    assert "<img src=x" in browser.ask(f"{PICTURES}[0].alt") and browser.said == []


@pytest.mark.parametrize(
    "width, scheme",
    [(1200, "light"), (1200, "dark"), (420, "light"), (420, "dark"), (320, "light")],
)
def test_it_fits_and_can_be_read(browser, shown, shots, width, scheme):
    shown(("plain", "hostile", "large", "stopped"), width=width, scheme=scheme)
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    browser.picture(shots / f"gallery-{width}-{scheme}.png")
    assert "not finished: at 48 of 48 images" in browser.ask(
        "document.getElementById('wall').innerText"
    )
    contrasts = browser.ask(DRIVER["CONTRASTS"])
    assert len(contrasts) > 40 and [one for one in contrasts if one[0] < 4.5] == []


def test_a_phone_shows_pictures_first_and_nothing_moves_for_those_who_asked(browser, shown):
    shown(width=420)
    assert browser.ask("document.getElementById('settings').open") is False
    assert browser.ask(f"{PICTURES}[0].getBoundingClientRect().top") < 800
    to(browser, "#settings > summary")
    key(browser, "Enter", 13)
    assert browser.ask("document.getElementById('settings').open") is True
    to(browser, "#steps")
    key(browser, "ArrowRight", 39)
    browser.wait(f"{SETTLED} && document.querySelector('.drawn').innerText.includes('3 steps')", 60)
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    browser.ask("document.querySelector('.frame').classList.add('waits')")
    assert browser.ask("getComputedStyle(document.querySelector('.frame')).animationName") == "none"


def test_a_prompt_that_is_typed_on_ends_the_drawing_before_it(browser, shown, served):
    shown()
    browser.ask(
        "document.getElementById('steps-own').checked = false;"
        " document.getElementById('steps').value = 60"
    )
    for prompt in ("a red star.", "a blue star.", "a green star."):
        browser.ask(
            f"document.getElementById('prompt').value = {prompt!r};"
            " document.getElementById('ask').requestSubmit()"
        )
    browser.wait(
        f"{SETTLED} && document.getElementById('wall').dataset.prompt === 'a green star.'", 60
    )
    assert browser.ask(f"{PICTURES}.every(i => i.alt.includes('a green star.'))")


def test_a_gallery_that_is_gone_says_so(browser, serve, desk, keys):
    with serve(desk) as server:
        browser.open(f"{address(server)}?runs={keys['plain'][:8]}")
        browser.wait(SETTLED, 60)
    browser.ask("document.getElementById('ask').requestSubmit()")
    browser.wait(f"{STATUS}.includes('does not answer')")
