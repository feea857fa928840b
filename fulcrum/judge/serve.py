"""Serve one folder or page on loopback, so that a browser can watch a study."""

import io
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from fulcrum.judge.page import settle
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# What our servers share: they stand on loopback, answer pages of their own only, and say nothing in
# the terminal.


HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
# seconds for a whole request, and for taking the next part of an answer: nobody holds a thread for
# ever
WAIT = 30.0


class _TimedRequest(io.RawIOBase):
    """The bytes of a request, until its time is up: a byte now and then would hold a thread for
    ever."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.connection, self.seconds, self.deadline = (
            connection,
            seconds,
            time.monotonic() + seconds,
        )

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self.connection.settimeout(left)
        count = self.connection.recv_into(into)
        self.connection.settimeout(self.seconds)  # for the answer
        return count


class LoopbackHandler(BaseHTTPRequestHandler):
    """Knows who asks, and sends the headers that every answer has."""

    server_version, sys_version = "fulcrum", ""
    timeout = WAIT

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_TimedRequest(self.connection, self.timeout))

    def refused(self) -> bool:
        """Does somebody else ask than a person on this machine or a page of this server? Then they
        were told so.

        A page of another site whose name was re-bound to 127.0.0.1 sends its own name as Host; one
        that only sends requests here is named by its Origin, or by what the browser says of it.
        Following a link from elsewhere is fine.
        """
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        site, mode = (
            self.headers.get("Sec-Fetch-Site", "none"),
            self.headers.get("Sec-Fetch-Mode", ""),
        )
        followed = self.command == "GET" and mode == "navigate"
        ours = (
            host.rsplit(":", 1)[0] in NAMES
            and origin in (None, f"http://{host}")
            and (site in ("none", "same-origin") or followed)
        )
        if not ours:
            self.send_error(HTTPStatus.FORBIDDEN, "only for this machine")
        return not ours

    def handle(self) -> None:
        # a browser that went away, or never finished its request
        with suppress(ConnectionError, TimeoutError):
            super().handle()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a live page must be read anew
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")  # no site may lay a page of ours under its own
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the terminal belongs to what the person runs."""


class LoopbackServer(ThreadingHTTPServer):
    """Says nothing of a connection that broke: a browser that goes away is no fault, and the
    terminal is a person's."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind(handler: Callable[..., BaseHTTPRequestHandler], port: int) -> ThreadingHTTPServer:
    """A server bound to loopback; port 0 takes any free one."""
    try:
        return LoopbackServer((HOST, port), handler)
    except OSError as error:
        raise BadInput(
            f"port {port} of this machine cannot be used: {error.strerror}",
            "choose another one with --port; --port 0 takes any free one",
        ) from None


def address(server: ThreadingHTTPServer) -> str:
    return f"http://{HOST}:{server.server_address[1]}/"


def until_stopped(server: ThreadingHTTPServer, ready: Callable[[str], None]) -> None:
    """Serves until Ctrl-C; `ready` is told the address."""
    with server:
        ready(address(server))
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


# --------------------------------------------------------------------------------------------------
# A tiny server for one folder on loopback, so that a browser can watch a study; nothing outside is
# reachable.


__all__ = ["HOST", "Handler", "address", "open_server", "serve"]
PAGE = "report.html"


class Handler(LoopbackHandler, SimpleHTTPRequestHandler):
    """GET and HEAD of files inside the folder; no listing, no hidden files, no symbolic link that
    leads out."""

    def send_head(self) -> BytesIO | BinaryIO | None:
        if self.refused():
            return None
        settle(Path(self.directory))  # a study that was killed cannot say so itself
        if self._file() is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such file in this report")
            return None
        return super().send_head()

    def end_headers(self) -> None:
        # the rest stands in the page itself
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        super().end_headers()

    def _file(self) -> Path | None:
        folder = Path(self.directory).resolve()
        wanted = unquote(self.path.partition("?")[0].partition("#")[0]).lstrip("/") or PAGE
        hidden = any(part.startswith(".") for part in Path(wanted).parts)
        try:
            path = (folder / wanted).resolve()
            return path if not hidden and path.is_relative_to(folder) and path.is_file() else None
        # a NUL byte, a loop of links, a name longer than the disk takes
        except (OSError, ValueError):
            return None

    def translate_path(self, path: str) -> str:
        return str(self._file() or Path(self.directory) / PAGE)


def open_server(folder: Path | str, port: int = 0) -> ThreadingHTTPServer:
    """A server of the folder, see `bind`. Call `serve_forever`, then `server_close`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"expected a folder with a report, found nothing at {folder}: "
            "give the folder of a study, or start one with `fulcrum study run`"
        )

    def handler(*args: Any, **kwargs: Any) -> Handler:
        return Handler(*args, directory=str(folder), **kwargs)

    return bind(handler, port)


def serve(folder: Path | str, port: int = 0, ready: Callable[[str], None] = print) -> None:
    """Serves until Ctrl-C; `ready` is told the address."""
    until_stopped(open_server(folder, port), ready)
