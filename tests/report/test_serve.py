"""The server answers on loopback only, from one folder only."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from fulcrum.judge import serve


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    folder = tmp_path / "report"
    (folder / "deep").mkdir(parents=True)
    (folder / "report.html").write_text("the page")
    (folder / "deep" / "a b.txt").write_text("inside")
    (folder / ".hidden").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with serve.open_server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(
    server: ThreadingHTTPServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(serve.HOST, server.server_address[1], timeout=5)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"localhost:{server.server_address[1]}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_it_binds_loopback(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert serve.address(server) == f"http://127.0.0.1:{server.server_address[1]}/"


@pytest.mark.parametrize(
    "path, body",
    [("/", "the page"), ("/report.html?x=1", "the page"), ("/deep/a%20b.txt", "inside")],
)
def test_it_serves_what_is_inside(server: ThreadingHTTPServer, path: str, body: str) -> None:
    assert get(server, path) == (200, body)


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/deep/../../secret.txt",
        "//etc/passwd",
        "/..%2fsecret.txt",
        "/link.txt",
        "/.hidden",
        "/deep",
        "/deep/",
        "/nothing",
        "/a%00b",
        "//[bad",
        "/" + "a" * 300,
        "/" + "a/" * 3000,
        "/" + "%F0%9F%90%B1" * 2000,
    ],
    ids=lambda path: path[:20],
)
def test_nothing_else(server: ThreadingHTTPServer, path: str) -> None:
    status, body = get(server, path)
    assert status == 404 and "secret" not in body.replace("no such file", "")


def test_a_foreign_host_name_and_other_methods_are_refused(server: ThreadingHTTPServer) -> None:
    assert get(server, "/", host="evil.example")[0] == 403
    assert get(server, "/", host="[bad")[0] in (400, 403)
    assert get(server, "/", method="POST")[0] == 501
    assert get(server, "/", method="HEAD") == (200, "")


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a folder with a report"):
        serve.open_server(tmp_path / "none")


def test_no_site_may_frame_the_page(server: ThreadingHTTPServer) -> None:
    for path in ("/", "/nothing"):
        connection = http.client.HTTPConnection(serve.HOST, server.server_address[1], timeout=5)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert answer.headers["X-Frame-Options"] == "DENY"
        connection.close()


def asked(server: ThreadingHTTPServer, data: bytes) -> socket.socket:
    connection = socket.create_connection((serve.HOST, server.server_address[1]), timeout=5)
    connection.sendall(data)
    return connection


def test_a_request_that_is_never_finished_is_let_go(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serve.Handler, "timeout", 0.2)
    for data in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "):
        with asked(server, data) as connection:
            assert connection.recv(100) == b""  # closed by the server, not by our five seconds
    assert get(server, "/") == (200, "the page")
    assert capfd.readouterr().err == ""


def test_a_request_that_comes_byte_by_byte_is_let_go(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.Handler, "timeout", 0.5)
    with (
        asked(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ") as connection,
        pytest.raises(OSError),
    ):
        for _ in range(40):  # twice a second would do for the socket's own patience
            connection.sendall(b"x")
            time.sleep(0.1)
            connection.settimeout(0.01)
            with suppress(TimeoutError):
                if connection.recv(1) == b"":
                    raise ConnectionError("let go")
            connection.settimeout(5)
    assert get(server, "/") == (200, "the page")


def test_it_waits_for_ever_for_nobody() -> None:
    assert 0 < serve.Handler.timeout <= 60


def test_a_connection_that_is_reset_says_nothing_in_the_terminal(
    server: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "report" / "large.bin").write_bytes(bytes(8_000_000))
    at_once = struct.pack("ii", 1, 0)  # close by a reset, with the answer unread
    for data in (b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HT", b"\0" * 100):
        for _ in range(3):
            connection = asked(server, data)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            connection.close()
    assert get(server, "/") == (200, "the page")
    assert capfd.readouterr().err == ""
