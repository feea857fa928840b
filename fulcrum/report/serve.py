"""A tiny server for one folder on loopback, so that a browser can watch a study; nothing outside is reachable."""

from collections.abc import Callable
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from fulcrum.report.loopback import HOST, LoopbackHandler, address, bind, until_stopped
from fulcrum.report.running import settle

__all__ = ["HOST", "Handler", "address", "open_server", "serve"]
PAGE = "report.html"


class Handler(LoopbackHandler, SimpleHTTPRequestHandler):
    """GET and HEAD of files inside the folder; no listing, no hidden files, no symbolic link that leads out."""

    def send_head(self) -> BytesIO | BinaryIO | None:
        if self.refused():
            return None
        settle(Path(self.directory))  # a study that was killed cannot say so itself
        if self._file() is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such file in this report")
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")  # the rest stands in the page itself
        super().end_headers()

    def _file(self) -> Path | None:
        folder = Path(self.directory).resolve()
        wanted = unquote(self.path.partition("?")[0].partition("#")[0]).lstrip("/") or PAGE
        hidden = any(part.startswith(".") for part in Path(wanted).parts)
        try:
            path = (folder / wanted).resolve()
            return path if not hidden and path.is_relative_to(folder) and path.is_file() else None
        except (OSError, ValueError):  # a NUL byte, a loop of links, a name longer than the disk takes
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
