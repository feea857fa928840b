"""What a captioner answered, in blocks of pictures: a block is a file that is whole or absent, so a killed command goes on.

    answers/00012.jsonl     a head with the body's hash, then a line for each picture: row, {style: [text, ended, score]},
                            and where somebody scores, the scores of the captions that were there

Rules are not applied here: with other rules the same answers are judged anew, and nobody is asked twice.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fulcrum.caption.captioner import Captioner, Picture
from fulcrum.caption.pair_fit import Score
from fulcrum.caption.prompts import CaptionPrompt
from fulcrum.data.caption_quality import cleaned
from fulcrum.data.stores.picture_store import PictureStore
from fulcrum.files.atomic import write_atomic
from fulcrum.files.sealed import parse_line, sha256_bytes
from fulcrum.spec.progress import Tally

ANSWERS = "answers"
AHEAD = 3  # batches that are decoded before they are asked about
Say = Callable[[str], None]


class Blocks:
    """The pictures of a store, cut into blocks; some of them done."""

    def __init__(self, store: PictureStore, partial: Path, size: int, limit: int | None = None) -> None:
        self.store, self.folder, self.size = store, partial / ANSWERS, size
        self.total = len(store) if limit is None else min(limit, len(store))

    def __len__(self) -> int:
        return -(-self.total // self.size)

    def rows(self, number: int) -> range:
        return range(number * self.size, min((number + 1) * self.size, self.total))

    def path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.jsonl"

    def read(self, number: int) -> list[dict[str, Any]] | None:
        """The lines of a block that is done; None: it is not, or it is not as it was written."""
        try:
            first, _, body = self.path(number).read_bytes().partition(b"\n")
        except OSError:
            return None
        head = parse_line(first).value or {}
        if head.get("sha256") != sha256_bytes(body):
            return None
        return [json.loads(line) for line in body.splitlines()]

    def missing(self, number: int = 0, of: int = 1) -> list[int]:
        """Blocks that are not there, of every `of`-th from this one on."""
        return [block for block in range(number, len(self), of) if self.read(block) is None]

    def write(self, number: int, lines: list[dict[str, Any]]) -> None:
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        head = json.dumps({"block": number, "lines": len(lines), "sha256": sha256_bytes(body)})
        write_atomic(self.path(number), head.encode() + b"\n" + body)


class Asking:
    """Asks about the pictures of blocks, batch after batch, while the next pictures are being decoded."""

    def __init__(
        self, blocks: Blocks, captioner: Captioner, prompts: Sequence[CaptionPrompt], score: Score | None, batch: int
    ) -> None:
        self.blocks, self.captioner, self.prompts, self.score, self.batch = blocks, captioner, prompts, score, batch
        self.busy = self.seconds = 0.0  # of the network, and of all
        self.asked = 0

    def run(self, numbers: Sequence[int], say: Say) -> None:
        self.blocks.folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        tally = Tally("captioned", sum(len(self.blocks.rows(number)) for number in numbers), say, "pictures")
        lines: list[dict[str, Any]] = []
        for block, rows, pictures in self._decoded(numbers):
            lines += self._answered(rows, pictures)
            self.asked += len(rows)
            self.seconds = time.monotonic() - begun
            if rows[-1] == self.blocks.rows(block)[-1]:
                self.blocks.write(block, lines)
                lines = []
            tally.tell(self.asked)
        self.seconds = time.monotonic() - begun

    def _decoded(self, numbers: Sequence[int]) -> Iterator[tuple[int, list[int], list[Picture]]]:
        """Batches in order; the next few are read and decoded on a thread of their own."""
        wanted = iter(
            (block, list(rows[first : first + self.batch]))
            for block in numbers
            for rows in [self.blocks.rows(block)]
            for first in range(0, len(rows), self.batch)
        )
        with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
            waiting: deque[tuple[int, list[int], Future[list[Picture]]]] = deque()
            try:
                while True:
                    for block, rows in wanted:
                        waiting.append((block, rows, pool.submit(self._pictures, rows)))
                        if len(waiting) > AHEAD:
                            break
                    if not waiting:
                        return
                    block, rows, pictures = waiting.popleft()
                    yield block, rows, pictures.result()
            finally:
                for _, _, future in waiting:
                    future.cancel()

    def _pictures(self, rows: list[int]) -> list[Picture]:
        return [self.blocks.store.picture(row) for row in rows]

    def _answered(self, rows: list[int], pictures: list[Picture]) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [{"row": row, "answers": {}} for row in rows]
        begun = time.monotonic()
        for prompt in self.prompts:
            answers = self.captioner.answers(pictures, rows, prompt)
            texts = [cleaned(answer.text) for answer in answers]
            scores: list[float | None] = list(self.score(pictures, texts)) if self.score else [None] * len(texts)
            for line, answer, text, score in zip(lines, answers, texts, scores, strict=True):
                line["answers"][prompt.style] = [text, answer.ended, score]
        if self.score:
            self._score_old(lines, pictures, self.score)
        self.busy += time.monotonic() - begun
        return lines

    def _score_old(self, lines: list[dict[str, Any]], pictures: list[Picture], score: Score) -> None:
        """How well the captions fit that were there: what the new ones are held against; of several wordings the first."""
        captioned = [(n, name, texts[0]) for n, line in enumerate(lines) for name, texts in self._old(line["row"])]
        fits = score([pictures[n] for n, _, _ in captioned], [text for _, _, text in captioned]) if captioned else []
        for (n, name, _), one in zip(captioned, fits, strict=True):
            lines[n].setdefault("before", {})[name] = one

    def _old(self, row: int) -> list[tuple[str, list[str]]]:
        return list(self.blocks.store.captions(row).items())
