"""A web server on this machine to fetch files from, with faults on request."""

import hashlib
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fulcrum.files import remote as remote_cache


class Site:
    """A web server on this machine: path -> bytes, with faults on request."""

    def __init__(self):
        self.files, self.asked, self.faults, self.slow, self.moved = {}, [], [], 0.0, {}
        # MB that come with a redirect, and how many of them were taken
        self.beside, self.taken = 0, 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(send=False)

            def do_GET(self):
                self.answer(send=True)

            def answer(self, send):
                path = self.path.split("?")[0]
                site.asked.append((self.command, path))
                if path in site.moved:
                    self.send_response(302)
                    self.send_header("Location", site.moved[path])
                    self.end_headers()
                    with suppress(ConnectionError):
                        for _ in range(site.beside if send else 0):
                            self.wfile.write(bytes(1 << 20))
                            site.taken += 1
                    return None
                data = site.files.get(path)
                if data is None or (self.command == "HEAD" and "no head" in site.faults):
                    return self.send_error(404 if data is None else 405)
                passing = send and site.faults and not {"no head", "no tag"} & set(site.faults)
                fault = site.faults.pop(0) if passing else ""
                if fault == "busy":
                    return self.send_error(503)
                self.send_response(200)
                if "no length" not in (fault, *site.faults):
                    self.send_header("Content-Length", str(len(data)))
                if "no tag" not in site.faults:
                    self.send_header("ETag", hashlib.md5(data).hexdigest())
                self.end_headers()
                if send:
                    sent = data[: len(data) // 2] if fault == "cut" else data
                    for first in range(0, len(sent), 1 << 16):
                        time.sleep(site.slow)
                        self.wfile.write(sent[first : first + (1 << 16)])

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def gets(self):
        return [path for command, path in self.asked if command == "GET"]


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(remote_cache, "PAUSE", 0.01)
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()
