"""A tiny server for one folder on loopback, so that a browser can watch a study; nothing outside is reachable."""

from collections.abc import Callable
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from fulcrum.report.running import settle
from fulcrum.spec.errors import BadInput

HOST = "127.0.0.1"
PAGE = "report.html"


class Handler(SimpleHTTPRequestHandler):
    """GET and HEAD of files inside the folder; no listing, no hidden files, no symbolic link that leads out."""

    server_version, sys_version = "fulcrum", ""

    def send_head(self) -> BytesIO | BinaryIO | None:
        # A page of another site whose name was re-bound to 127.0.0.1 sends its own name as Host.
        if self.headers.get("Host", "").rsplit(":", 1)[0] not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "only for this machine")
            return None
        settle(Path(self.directory))  # a study that was killed cannot say so itself
        if self._file() is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such file in this report")
            return None
        return super().send_head()

    def _file(self) -> Path | None:
        folder = Path(self.directory).resolve()
        wanted = unquote(self.path.partition("?")[0].partition("#")[0]).lstrip("/") or PAGE
        try:
            path = (folder / wanted).resolve()
        except (OSError, ValueError):  # a NUL byte, a loop of links
            return None
        hidden = any(part.startswith(".") for part in Path(wanted).parts)
        return path if not hidden and path.is_relative_to(folder) and path.is_file() else None

    def translate_path(self, path: str) -> str:
        return str(self._file() or Path(self.directory) / PAGE)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a live page must be read anew
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the terminal belongs to the study's progress."""


def open_server(folder: Path | str, port: int = 0) -> ThreadingHTTPServer:
    """A server bound to loopback; port 0 takes any free one. Call `serve_forever`, then `server_close`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"expected a folder with a report, found nothing at {folder}: "
            "give the folder of a study, or start one with `fulcrum study run`"
        )

    def handler(*args: Any, **kwargs: Any) -> Handler:
        return Handler(*args, directory=str(folder), **kwargs)

    try:
        return ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise BadInput(
            f"port {port} of this machine cannot be used: {error.strerror}",
            "choose another one with --port; --port 0 takes any free one",
        ) from None


def address(server: ThreadingHTTPServer) -> str:
    return f"http://{HOST}:{server.server_address[1]}/"


def serve(folder: Path | str, port: int = 0, ready: Callable[[str], None] = print) -> None:
    """Serves until Ctrl-C; `ready` is told the address."""
    with open_server(folder, port) as server:
        ready(address(server))
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return
