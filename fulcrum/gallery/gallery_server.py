"""The gallery's server, on loopback: the page, the study's page, drawing as it goes, and pictures by their hash.

No part of a request is a path on the disk: runs are known by key from the list at the start, pictures are kept in memory.
"""

import json
import re
import select
import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from fulcrum.gallery import gallery_page
from fulcrum.gallery.drawing_desk import DrawingDesk
from fulcrum.gallery.exhibit import RESULT
from fulcrum.gallery.gallery_request import GalleryRequest
from fulcrum.judge import page as study_page
from fulcrum.judge.page import settle
from fulcrum.judge.serve import LoopbackHandler, bind, until_stopped
from fulcrum.spec.errors import FulcrumError

MOST_BODY = 16_384  # bytes of a request
PATIENCE = 60.0  # seconds for a request to arrive
LENGTH = re.compile("[0-9]{1,9}")  # Python refuses to read a number of thousands of digits
PICTURE = re.compile("/picture/([0-9a-f]{64})-([0-9])")


class GalleryHandler(LoopbackHandler):
    timeout = PATIENCE

    def __init__(self, desk: DrawingDesk, prompts: list[str], *args: Any) -> None:
        self.desk, self.prompts = desk, prompts
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.refused():
            return
        path = urlsplit(self.path).path if self.path.startswith("/") else ""
        picture = PICTURE.fullmatch(path)
        if path == "/":
            page = gallery_page.render(self.desk.collection, self.prompts)
            self._send(page.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": gallery_page.policy()})
        elif path == "/study" and self.desk.collection.study is not None:
            self._send_study()
        elif picture and (kept := self.desk.picture(picture[1], int(picture[2]))):
            self._send(kept.data, "image/png", {"Content-Disposition": f'inline; filename="{kept.name}"'})
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "not in this gallery")

    def do_POST(self) -> None:
        if self.refused():
            return
        length = self.headers.get("Content-Length", "")
        if self.path != "/draw":
            self.send_error(HTTPStatus.NOT_FOUND, "not in this gallery")
        elif self.headers.get_content_type() != "application/json":  # a form of another site cannot send this
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        elif not LENGTH.fullmatch(length) or int(length) > MOST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BODY} bytes")
        else:
            self._draw(self.rfile.read(int(length)))

    def _draw(self, body: bytes) -> None:
        """A line of JSON for each column, sent when it is drawn."""
        try:
            request = GalleryRequest.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            refusal = {"error": f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}"}
            self._send(json.dumps(refusal).encode(), "application/json", {}, HTTPStatus.BAD_REQUEST)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        try:
            for answer in self.desk.answers(request, self._closed):
                self.wfile.write(json.dumps(answer).encode() + b"\n")
                self.wfile.flush()
        except FulcrumError as error:
            self.wfile.write(json.dumps({"error": error.message}).encode() + b"\n")

    def _closed(self) -> bool:
        """Has the browser left? Then its end of the connection is readable and holds nothing."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _send_study(self) -> None:
        """The study's page as it stands, its prompts with links to this gallery."""
        folder = self.desk.collection.study
        assert folder is not None
        settle(folder)
        try:
            page = study_page.render(study_page.read(folder / RESULT), gallery="/")
            touched = (folder / "report.html").stat().st_mtime  # a running study does so, and its page looks
        except (OSError, ValueError):
            self.send_error(HTTPStatus.NOT_FOUND, "the study's result cannot be read")
            return
        self._send(page.encode(), "text/html; charset=utf-8", {"Last-Modified": self.date_time_string(touched)})

    def _send(self, body: bytes, kind: str, headers: dict[str, str], status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def open_gallery(desk: DrawingDesk, prompts: list[str], port: int = 0) -> ThreadingHTTPServer:
    """Bound to loopback; call `serve_forever`, then `server_close`."""
    return bind(partial(GalleryHandler, desk, prompts), port)


def serve_gallery(desk: DrawingDesk, prompts: list[str], port: int, ready: Callable[[str], None]) -> None:
    """Serves until Ctrl-C. The runs that are shown first are opened meanwhile."""
    server = open_gallery(desk, prompts, port)
    Thread(target=desk.open_first, args=(gallery_page.FIRST,), daemon=True).start()
    until_stopped(server, ready)
