"""The gallery answers its own page on this machine, and nothing of a request reaches the disk."""

import json
import socket
import threading
import time

import pytest

from fulcrum.training.painter import Painter

PROMPT = "a large red circle at the top left."


def lines(content):
    return [json.loads(line) for line in content.splitlines()]


def test_it_binds_loopback_and_sends_a_page_that_asks_nobody_else(served, ask):
    assert served.server_address[0] == "127.0.0.1"
    status, headers, page = ask(served, "GET", "/?prompt=anything")
    policy = headers["Content-Security-Policy"]
    assert (
        status == 200
        and headers["Cache-Control"] == "no-store"
        and headers["X-Content-Type-Options"] == "nosniff"
    )
    assert (
        "default-src 'none'" in policy
        and "script-src 'sha256-" in policy
        and "frame-ancestors 'none'" in policy
    )
    assert b"http://" not in page and b"https://" not in page


def test_a_drawing_comes_line_by_line_and_its_pictures_are_fetched_by_hash(served, ask, keys):
    body = {
        "page": "a",
        "prompt": PROMPT,
        "columns": [{"key": keys["plain"]}, {"key": keys["large"]}],
    }
    status, headers, content = ask(served, "POST", "/draw", body)
    first, second, last = lines(content)
    assert status == 200 and headers["Content-Type"] == "application/x-ndjson" and last["done"]
    assert [first["size"], second["size"]] == ["32×32", "64×64"]
    status, headers, picture = ask(served, "GET", f"/picture/{first['pictures'][0]['id']}")
    assert (
        status == 200 and headers["Content-Type"] == "image/png" and picture.startswith(b"\x89PNG")
    )
    assert (
        headers["Content-Disposition"].endswith(f'{keys["plain"][:8]}.png"')
        and PROMPT.encode() in picture
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8124"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},  # another port of this machine
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_others_are_refused(served, ask, keys, headers):
    body = {"page": "a", "prompt": PROMPT, "columns": [{"key": keys["plain"]}]}
    for request in (("GET", "/"), ("GET", "/picture/" + "0" * 64 + "-0"), ("POST", "/draw", body)):
        status, _, content = ask(served, *request, **headers)
        assert status == 403 and b"pictures" not in content, request


def test_a_link_from_elsewhere_may_be_followed_to_the_page_but_sends_nothing(served, ask):
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert ask(served, "GET", "/?prompt=a", **followed)[0] == 200
    assert ask(served, "POST", "/draw", {"page": "a"}, **followed)[0] == 403
    assert ask(served, "GET", "/", Host="localhost:1")[0] == 200  # a tunnel has another port


@pytest.mark.parametrize(
    "path",
    [
        "/../keys.json",
        "/%2e%2e/keys.json",
        "/picture/../../keys.json",
        "/picture/" + "0" * 64 + "-0",
        "/picture/..%2f..%2fkeys.json",
        "//etc/passwd",
        "http://127.0.0.1/",
        "/study",  # there is none
        "/draw",
        "/about.json",
        "/%00",
        "*",
    ],
)
def test_no_path_leads_to_the_disk(served, ask, path):
    status, _, content = ask(served, "GET", path)
    assert status == 404 and b"root:" not in content and b"hostile" not in content


@pytest.mark.parametrize(
    "change, names",
    [
        ({"prompt": "a" * 2001}, "prompt"),
        ({"count": 9}, "count"),
        ({"count": 0}, "count"),
        ({"steps": 201}, "steps"),
        ({"steps": 0}, "steps"),
        ({"guidance": 101}, "guidance"),
        ({"guidance": -1}, "guidance"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**53}, "seed"),
        ({"columns": []}, "columns"),
        ({"columns": [{"key": "0" * 16}] * 13}, "columns"),
        ({"columns": [{"key": "../../etc"}]}, "columns"),
        ({"columns": [{"key": "0" * 16, "at": 0}]}, "columns"),
        ({"page": "../x"}, "page"),
        ({"path": "/etc/passwd"}, "path"),
    ],
)
def test_more_than_the_limits_is_refused_by_name(served, ask, keys, change, names):
    body = {"page": "a", "prompt": PROMPT, "columns": [{"key": keys["plain"]}], **change}
    status, _, content = ask(served, "POST", "/draw", body)
    assert status == 400 and json.loads(content)["error"].startswith(names)


def test_bodies_that_are_no_request(served, ask, keys):
    good = {"page": "a", "prompt": PROMPT, "columns": [{"key": keys["plain"]}]}
    assert ask(served, "POST", "/draw", b"{" * 9000)[0] == 400
    assert ask(served, "POST", "/draw", b'{"guidance": NaN}')[0] == 400
    assert ask(served, "POST", "/draw", b"\xff\xfe")[0] == 400
    assert ask(served, "POST", "/draw", b" " * 16_385)[0] == 413
    assert ask(served, "POST", "/draw", good, Content_Length="-1")[0] == 413
    # more digits than Python reads
    assert ask(served, "POST", "/draw", good, Content_Length="9" * 5_000)[0] == 413
    # what a form of another site may send
    assert ask(served, "POST", "/draw", good, Content_Type="text/plain")[0] == 415
    assert ask(served, "POST", "/other", good)[0] == 404
    assert ask(served, "OPTIONS", "/draw")[0] == ask(served, "PUT", "/draw", good)[0] == 501
    unknown = {**good, "columns": [{"key": "0" * 16}]}
    assert "not in the gallery" in lines(ask(served, "POST", "/draw", unknown)[2])[0]["error"]


def test_letters_that_cannot_be_seen_do_not_reach_the_command(served, ask, keys):
    body = {
        "page": "a",
        "prompt": "a \x1b[2Jred\n\u202e circle;\trm -rf $HOME",
        "columns": [{"key": keys["plain"]}],
    }
    answer = lines(ask(served, "POST", "/draw", body)[2])[0]
    assert (
        answer["command"].isprintable()
        and "'a  [2Jred   circle; rm -rf $HOME'" in answer["command"]
    )


def test_a_browser_that_left_keeps_nobody_waiting(served, ask, keys, monkeypatch):
    """One leaves in the middle of its picture, one while it waits for its turn: neither is drawn to
    the end."""
    steps, drawing, left = [], threading.Event(), threading.Event()
    watched = Painter.watched

    def slow(self, look):
        def slowly():
            look()
            steps.append(self.run.sample.steps)
            if self.run.sample.steps == 50:
                drawing.set()
                left.wait(30)

        return watched(self, slowly)

    monkeypatch.setattr(Painter, "watched", slow)
    port = served.server_address[1]

    def leaving(page, count):
        body = json.dumps(
            {"page": page, "prompt": PROMPT, "steps": count, "columns": [{"key": keys["plain"]}]}
        ).encode()
        head = (
            f"POST /draw HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        )
        browser = socket.create_connection(("127.0.0.1", port), timeout=30)
        browser.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return browser

    desk = served.RequestHandlerClass.args[0]
    first = leaving("a", 50)
    assert drawing.wait(30)
    second = leaving("b", 49)
    while len(desk.newest) < 2:
        time.sleep(0.01)
    first.close(), second.close()
    patience = time.monotonic() + 20
    while "b" in desk.newest and time.monotonic() < patience:  # one that waits notices it by itself
        time.sleep(0.01)
    assert "b" not in desk.newest
    left.set()
    body = {"page": "c", "prompt": PROMPT, "steps": 2, "columns": [{"key": keys["plain"]}]}
    assert lines(ask(served, "POST", "/draw", body)[2])[-1]["done"]
    assert steps.count(50) == 1 and not steps.count(49) and not desk.newest
