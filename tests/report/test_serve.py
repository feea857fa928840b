"""The server answers on loopback only, from one folder only."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from fulcrum.report import serve


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


def get(server: ThreadingHTTPServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
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


@pytest.mark.parametrize("path, body", [("/", "the page"), ("/report.html?x=1", "the page"), ("/deep/a%20b.txt", "inside")])
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
    ],
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
