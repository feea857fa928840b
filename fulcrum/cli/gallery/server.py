"""The gallery's server on loopback: its page, and the queue of pictures to draw."""

import json
import re
import select
import shlex
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import ValidationError

from fulcrum.cli.gallery.runs import (
    MOST_COLUMNS,
    MOST_GUIDANCE,
    MOST_LETTERS,
    MOST_PICTURES,
    MOST_SEED,
    MOST_STEPS,
    RESULT,
    Collection,
    Exhibit,
    GalleryRequest,
    OpenModels,
    WantedColumn,
)
from fulcrum.files.sealed import sha256_json
from fulcrum.judge import page as study_page
from fulcrum.judge.page import script_hash, settle
from fulcrum.judge.serve import LoopbackHandler, bind, until_stopped
from fulcrum.networks.text import forget_prompts, misread, shortened
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.training.kept_weights import points
from fulcrum.training.pictures import (
    Variant,
    drawn,
    file_words,
    picture_facts,
    png,
    rows_of,
    to_image,
)

# --------------------------------------------------------------------------------------------------
# Draws what pages ask for, one column after another: each picture once, the newest request of a
# page first.


MOST_WAITING = 16  # requests at a time
MOST_KEPT = 64 << 20  # bytes of pictures that are kept
TICK = 0.05  # seconds after which one that waits looks whether it is still wanted
# pixels of a side up to which a picture is enlarged, and how much: as `fulcrum sample` does
SMALL, SCALE = 256, 4


class Superseded(Exception):
    """The page that asked wants something else by now, or is closed."""


class DrawingTurn:
    """What a page asked for, as long as it wants it."""

    def __init__(self, closed: Callable[[], bool]) -> None:
        self.replaced, self.closed = threading.Event(), closed

    def require_wanted(self) -> None:
        if self.replaced.is_set() or self.closed():
            raise Superseded


class KeptPicture(NamedTuple):
    data: bytes  # a PNG that says how it was drawn
    name: str  # of its file


class KeptColumn(NamedTuple):
    answer: dict[str, Any]  # what the page is told
    pictures: list[KeptPicture]


class DrawingDesk:
    """One drawing at a time; pictures stay in memory and are known by the hash of all that decides
    them."""

    def __init__(
        self,
        collection: Collection,
        models: OpenModels,
        options: Sequence[str] = (),
        most_kept: int = MOST_KEPT,
    ) -> None:
        """`options`: what a `fulcrum sample` command needs besides to find the runs (--out, --with,
        --device)."""
        self.collection, self.models, self.options, self.most_kept = (
            collection,
            models,
            options,
            most_kept,
        )
        self.columns: OrderedDict[str, KeptColumn] = OrderedDict()
        self.newest: dict[str, DrawingTurn] = {}  # of each page
        self.drawing, self.keeping = threading.Lock(), threading.Lock()
        self.waiting = threading.Semaphore(MOST_WAITING)

    def open_first(self, count: int) -> None:
        """Open the first runs before anybody asks; what fails is told when it is asked for."""
        for exhibit in self.collection.exhibits[:count]:
            with suppress(Exception):
                self.models.painter(exhibit, points(exhibit.folder)[-1])

    def answers(
        self, request: GalleryRequest, closed: Callable[[], bool] = lambda: False
    ) -> Iterator[dict[str, Any]]:
        """One record for each column as it comes, and one at the end. A request ends early when its
        page asks for something else, or is `closed`: nobody waits for pictures that nobody will
        see."""
        with self._turn(request.page, closed) as turn:
            begun = time.perf_counter()
            for column in request.columns:
                try:
                    yield {"key": column.key, **self._column(request, column, turn)}
                except Superseded:
                    yield {"superseded": True}
                    return
                except FulcrumError as error:
                    yield {
                        "key": column.key,
                        "error": f"{error.message}{': ' if error.hint else ''}{error.hint}",
                    }
                # one run's fault: the others are still drawn, and the page goes on
                except Exception as error:
                    yield {"key": column.key, "error": f"{type(error).__name__}: {error}"}
            yield {"done": True, "seconds": round(time.perf_counter() - begun, 3)}

    @contextmanager
    def _turn(self, page: str, closed: Callable[[], bool]) -> Iterator[DrawingTurn]:
        if not self.waiting.acquire(blocking=False):
            raise BadInput("too many pages ask at once", "close some of them")
        turn = DrawingTurn(closed)
        with self.keeping:
            before, self.newest[page] = self.newest.get(page), turn
        if before is not None:
            before.replaced.set()
        try:
            yield turn
        finally:
            self.waiting.release()
            if self.newest.get(page) is turn:
                del self.newest[page]

    def _column(
        self, request: GalleryRequest, column: WantedColumn, turn: DrawingTurn
    ) -> dict[str, Any]:
        exhibit = self.collection.by_key(column.key)
        if exhibit is None:
            raise BadInput(
                "this run is not in the gallery",
                "name it when you open the gallery: fulcrum gallery RUN ...",
            )
        images = _point(exhibit, column.at)
        asked = [
            column.key,
            images,
            request.prompt,
            request.seed,
            request.count,
            request.guidance,
            request.steps,
        ]
        ident = sha256_json(asked)
        kept = self._kept(ident)
        if kept is not None:
            return {**kept.answer, "kept": True}
        while not self.drawing.acquire(timeout=TICK):
            turn.require_wanted()
        try:
            kept = self._drawn(request, exhibit, images, ident, turn)
        finally:
            self.drawing.release()
        with self.keeping:
            self.columns[ident] = kept
            while len(self.columns) > 1 and sum(map(_size, self.columns.values())) > self.most_kept:
                self.columns.popitem(last=False)
        return kept.answer

    def picture(self, ident: str, number: int) -> KeptPicture | None:
        """By what `answers` called it; None: it was never drawn, or is kept no more."""
        kept = self._kept(ident)
        return kept.pictures[number] if kept is not None and number < len(kept.pictures) else None

    def _kept(self, ident: str) -> KeptColumn | None:
        with self.keeping:
            if ident in self.columns:
                self.columns.move_to_end(ident)
            return self.columns.get(ident)

    def _drawn(
        self, request: GalleryRequest, exhibit: Exhibit, images: int, ident: str, turn: DrawingTurn
    ) -> KeptColumn:
        turn.require_wanted()
        begun = time.perf_counter()
        painter = self.models.painter(exhibit, images)
        own = painter.sampling(request.guidance, request.steps).watched(turn.require_wanted)
        prompt, cut = shortened(painter.text, request.prompt)
        forget_prompts(painter.text)
        rows = rows_of([prompt], [request.seed], request.count)
        variant = Variant(exhibit.key, exhibit.origin, own)
        pictures = drawn(variant, rows)
        scale = SCALE if max(pictures[0].shape[1:]) <= SMALL else 1
        settled = images == points(exhibit.folder)[-1] and exhibit.folder.result() is not None
        at = None if settled else images
        files = [
            KeptPicture(
                png(
                    to_image(picture, scale),
                    picture_facts(variant, row, picture, scale, "", "euler", at),
                ),
                f"{file_words(row.prompt)}-{row.number:03d}-seed{row.seed}-{exhibit.key[:8]}.png",
            )
            for row, picture in zip(rows, pictures, strict=True)
        ]
        answer = {
            "pictures": [
                {"id": f"{ident}-{number}", "file": file.name, "number": number}
                for number, file in enumerate(files)
            ],
            "images": images,
            "guidance": variant.guidance,
            "steps": variant.steps,
            "size": f"{pictures[0].shape[2]}×{pictures[0].shape[1]}",
            "notes": [*([cut] if cut else []), *misread(painter.text)],
            "command": self._command(request, exhibit, prompt, at, scale),
            "seconds": round(time.perf_counter() - begun, 3),
        }
        return KeptColumn(answer, files)

    def _command(
        self, request: GalleryRequest, exhibit: Exhibit, prompt: str, at: int | None, scale: int
    ) -> str:
        """What draws the same from a terminal."""
        options = {
            "--seed": request.seed or None,
            "--count": request.count if request.count > 1 else None,
            "--guidance": None
            if request.guidance is None
            else repr(request.guidance).removesuffix(".0"),
            "--steps": request.steps,
            "--at": at,
            "--scale": scale if scale != SCALE else None,
        }
        words = [
            word
            for name, value in options.items()
            if value is not None
            for word in (name, str(value))
        ]
        # it is no option
        arguments = ["--", exhibit.key, prompt] if prompt.startswith("-") else [exhibit.key, prompt]
        return shlex.join(["fulcrum", "sample", *words, *self.options, *arguments])


def _point(exhibit: Exhibit, at: int | None) -> int:
    """The newest point not after `at`, or the first: runs are kept at points of their own."""
    known = points(exhibit.folder)
    if not known:
        raise BadInput("its weights are gone", "train it again, and open the gallery anew")
    return max((point for point in known if at is None or point <= at), default=known[0])


def _size(column: KeptColumn) -> int:
    return sum(len(picture.data) for picture in column.pictures)


def sample_options(out: Path, usual: Path, files: Sequence[Path], device: str) -> list[str]:
    """What a command must say to find the gallery's runs again."""
    options = [("--out", str(out))] if out != usual else []
    options += [("--with", str(file)) for file in files]
    options += [("--device", device)] if device != "cpu" else []
    return [word for option in options for word in option]


# --------------------------------------------------------------------------------------------------
# The gallery's page: one HTML text with its style and script inside; it asks nobody but the server
# that it came from.


FIRST = 4  # runs that are shown until a person chooses
LIMITS = {
    "letters": MOST_LETTERS,
    "pictures": MOST_PICTURES,
    "steps": MOST_STEPS,
    "columns": MOST_COLUMNS,
    "guidance": MOST_GUIDANCE,
    "seed": MOST_SEED,
}
POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src '{}'"
)


def render(collection: Collection, prompts: list[str]) -> str:
    """`prompts`: examples that a person may begin with. Every value is escaped; run names and
    prompts are text."""
    environment = Environment(
        loader=PackageLoader("fulcrum.cli.gallery"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = [exhibit.facts() for exhibit in collection.exhibits]
    return environment.get_template("gallery.jinja").render(
        collection=collection,
        runs=runs,
        prompts=prompts,
        first=FIRST,
        limits=LIMITS,
        data={"runs": runs, "limits": LIMITS, "first": FIRST, "prompts": prompts},
        style=Markup(
            _text("fulcrum.judge", "style.css") + _text("fulcrum.cli.gallery", "gallery.css")
        ),
        script=Markup(script()),
    )


def script() -> str:
    return _text("fulcrum.cli.gallery", "gallery.js")


def policy() -> str:
    """The content security policy: one script may run, known by its hash."""
    return POLICY.format(script_hash(script()))


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(f"templates/{name}").read_text("utf-8")


# --------------------------------------------------------------------------------------------------
# The gallery's server, on loopback: the page, the study's page, drawing as it goes, and pictures by
# their hash.
#
# No part of a request is a path on the disk: runs are known by key from the list at the start,
# pictures are kept in memory.


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
            page = render(self.desk.collection, self.prompts)
            self._send(
                page.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy()}
            )
        elif path == "/study" and self.desk.collection.study is not None:
            self._send_study()
        elif picture and (kept := self.desk.picture(picture[1], int(picture[2]))):
            self._send(
                kept.data, "image/png", {"Content-Disposition": f'inline; filename="{kept.name}"'}
            )
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "not in this gallery")

    def do_POST(self) -> None:
        if self.refused():
            return
        length = self.headers.get("Content-Length", "")
        if self.path != "/draw":
            self.send_error(HTTPStatus.NOT_FOUND, "not in this gallery")
        # a form of another site cannot send this
        elif self.headers.get_content_type() != "application/json":
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected application/json")
        elif not LENGTH.fullmatch(length) or int(length) > MOST_BODY:
            self.send_error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {MOST_BODY} bytes"
            )
        else:
            self._draw(self.rfile.read(int(length)))

    def _draw(self, body: bytes) -> None:
        """A line of JSON for each column, sent when it is drawn."""
        try:
            request = GalleryRequest.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            refusal = {
                "error": f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}"
            }
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
            # a running study does so, and its page looks
            touched = (folder / "report.html").stat().st_mtime
        except (OSError, ValueError):
            self.send_error(HTTPStatus.NOT_FOUND, "the study's result cannot be read")
            return
        self._send(
            page.encode(),
            "text/html; charset=utf-8",
            {"Last-Modified": self.date_time_string(touched)},
        )

    def _send(
        self, body: bytes, kind: str, headers: dict[str, str], status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def open_gallery(desk: DrawingDesk, prompts: list[str], port: int = 0) -> ThreadingHTTPServer:
    """Bound to loopback; call `serve_forever`, then `server_close`."""
    return bind(partial(GalleryHandler, desk, prompts), port)


def serve_gallery(
    desk: DrawingDesk, prompts: list[str], port: int, ready: Callable[[str], None]
) -> None:
    """Serves until Ctrl-C. The runs that are shown first are opened meanwhile."""
    server = open_gallery(desk, prompts, port)
    Thread(target=desk.open_first, args=(FIRST,), daemon=True).start()
    until_stopped(server, ready)
