"""Recaption a store: ask a captioner block by block, filter its answers, write a new store."""

import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from fulcrum.data.caption_quality import CaptionCounter, CaptionRules, cleaned
from fulcrum.data.stores.derived_store import (
    REQUEST,
    Decided,
    derive,
    made_already,
    partial_of,
    tidy,
    unfinished,
)
from fulcrum.data.stores.picture_store import PictureStore, local_folder
from fulcrum.files.atomic import atomic_file, rename_folder, write_atomic
from fulcrum.files.folders import BeginMark, require_begun
from fulcrum.files.prefetch import prefetched
from fulcrum.files.sealed import read_block, read_json, sha256_json, write_block
from fulcrum.networks.captioning.captioners import (
    Captioner,
    CaptionPrompt,
    Picture,
    Score,
    Settings,
    open_captioner,
    open_world_scorer,
    provenance,
)
from fulcrum.spec.errors import BadInput, install_extra
from fulcrum.spec.progress import Tally
from fulcrum.spec.run import cores

# --------------------------------------------------------------------------------------------------
# What a captioner answered, in blocks of pictures: a block is a file that is whole or absent, so a
# killed command goes on.
#
#     answers/00012.jsonl     a head with the body's hash, then a line for each picture: row,
#                             {style: [text, ended, score]}, and where somebody scores, the scores
#                             of the captions that were there
#
# Rules are not applied here: with other rules the same answers are judged anew, and nobody is asked
# twice.


ANSWERS = "answers"
AHEAD = 3  # batches that are decoded before they are asked about
Say = Callable[[str], None]
OpenScore = Callable[[str], Score | None]


class Blocks:
    """The pictures of a store, cut into blocks; some of them done."""

    def __init__(
        self, store: PictureStore, partial: Path, size: int, limit: int | None = None
    ) -> None:
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
            block = read_block(self.path(number))
        except OSError:
            return None
        return block[1] if block else None

    def missing(self, number: int = 0, of: int = 1) -> list[int]:
        """Blocks that are not there, of every `of`-th from this one on."""
        return [block for block in range(number, len(self), of) if self.read(block) is None]

    def write(self, number: int, lines: list[dict[str, Any]]) -> None:
        write_block(self.path(number), {"block": number}, lines)


class Asking:
    """Asks about the pictures of blocks, batch after batch, while the next pictures are being
    decoded."""

    def __init__(
        self,
        blocks: Blocks,
        captioner: Captioner,
        prompts: Sequence[CaptionPrompt],
        score: Score | None,
        batch: int,
    ) -> None:
        self.blocks, self.captioner, self.prompts, self.score, self.batch = (
            blocks,
            captioner,
            prompts,
            score,
            batch,
        )
        self.busy = self.seconds = 0.0  # of the network, and of all
        self.asked = 0

    def run(self, numbers: Sequence[int], say: Say) -> None:
        self.blocks.folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        tally = Tally(
            "captioned", sum(len(self.blocks.rows(number)) for number in numbers), say, "pictures"
        )
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
        wanted = (
            (block, list(rows[first : first + self.batch]))
            for block in numbers
            for rows in [self.blocks.rows(block)]
            for first in range(0, len(rows), self.batch)
        )
        return prefetched(self._with_pictures, wanted, AHEAD, thread_name_prefix="decode")

    def _with_pictures(self, wanted: tuple[int, list[int]]) -> tuple[int, list[int], list[Picture]]:
        block, rows = wanted
        return block, rows, [self.blocks.store.picture(row) for row in rows]

    def _answered(self, rows: list[int], pictures: list[Picture]) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [{"row": row, "answers": {}} for row in rows]
        begun = time.monotonic()
        for prompt in self.prompts:
            answers = self.captioner.answers(pictures, rows, prompt)
            texts = [cleaned(answer.text) for answer in answers]
            scores: list[float | None] = (
                list(self.score(pictures, texts)) if self.score else [None] * len(texts)
            )
            for line, answer, text, score in zip(lines, answers, texts, scores, strict=True):
                line["answers"][prompt.style] = [text, answer.ended, score]
        if self.score:
            self._score_old(lines, pictures, self.score)
        self.busy += time.monotonic() - begun
        return lines

    def _score_old(
        self, lines: list[dict[str, Any]], pictures: list[Picture], score: Score
    ) -> None:
        """How well the captions fit that were there: what the new ones are held against; of several
        wordings the first."""
        captioned = [
            (n, name, texts[0])
            for n, line in enumerate(lines)
            for name, texts in self.blocks.store.captions(line["row"]).items()
        ]
        fits = (
            score([pictures[n] for n, _, _ in captioned], [text for _, _, text in captioned])
            if captioned
            else []
        )
        for (n, name, _), one in zip(captioned, fits, strict=True):
            lines[n].setdefault("before", {})[name] = one


# --------------------------------------------------------------------------------------------------
# Answers become captions or are quarantined: block by block, counted as they pass, so that memory
# does not grow.


Judged = dict[str, tuple[str, str, float | None]]  # style -> text, fault, score


class Judging:
    """Called with the rows of a store in their order."""

    def __init__(
        self,
        store: PictureStore,
        blocks: Blocks,
        columns: dict[str, str],
        rules: CaptionRules,
        least_score: float | None,
        keep_all: bool,
        quarantine: IO[bytes],
    ) -> None:
        self.store, self.blocks, self.columns, self.rules = store, blocks, columns, rules
        self.least_score, self.keep_all, self.quarantine = least_score, keep_all, quarantine
        self.number, self.block = -1, dict[int, dict[str, Any]]()
        self.found: Counter[str] = Counter()  # style and category of a fault -> answers
        self.before = {name: CaptionCounter() for name in store.about["captions"]}
        self.after = {name: CaptionCounter() for name in columns.values()}

    def decided(self, row: int) -> Decided:
        if row >= self.blocks.total:
            return Decided("dropped", "not asked about: beyond --limit")
        captions, judged = self.store.captions(row), self._judged(row)
        scores = self.block[row].get("before", {})
        for name, texts in captions.items():
            for number, text in enumerate(texts):
                self.before[name].add(text, None if number else scores.get(name))
        for style, (text, fault, score) in judged.items():
            if not fault:
                self.after[self.columns[style]].add(text, score)
        faults = {style: fault for style, (_, fault, _) in judged.items() if fault}
        if faults and not self.keep_all:
            style, fault = next(iter(faults.items()))
            return Decided(
                "quarantined",
                f"no good caption, {fault.split(':')[0]}: {self.columns[style]}, {fault}",
            )
        new = {
            self.columns[style]: [text] for style, (text, fault, _) in judged.items() if not fault
        }
        return Decided("kept", captions={**captions, **new})

    def statistics(self) -> dict[str, Any]:
        return {
            "before": {name: one.numbers() for name, one in self.before.items()},
            "after": {name: one.numbers() for name, one in self.after.items()},
        }

    def _judged(self, row: int) -> Judged:
        number = row // self.blocks.size
        if number != self.number:
            self.number, self.block = (
                number,
                {line["row"]: line for line in self.blocks.read(number) or ()},
            )
        judged: Judged = {}
        for style, (text, ended, score) in self.block[row]["answers"].items():
            fault = self._fault(text, ended, score, style)
            judged[style] = (text, fault, score)
            if fault:
                self.found[f"{style}: {fault.split(':')[0]}"] += 1
                record = {
                    "row": row,
                    "name": self.store.name(row),
                    "style": style,
                    "text": text,
                    "reason": fault,
                }
                self.quarantine.write(f"{json.dumps(record)}\n".encode())
        return judged

    def _fault(self, text: str, ended: bool, score: float | None, style: str) -> str:
        fault = self.rules.fault(text, style)
        if not fault and not ended:
            fault = "cut off: no end within the most tokens"
        if (
            not fault
            and self.least_score is not None
            and (score is None or not score >= self.least_score)
        ):
            fault = (
                f"score: {'none' if score is None else f'{score:.3g}'}, at least"
                f" {self.least_score:g}"
            )
        return fault


# --------------------------------------------------------------------------------------------------
# Are pictures of the embedded world? Its captioner tells them and its scorer says how well that
# fits: others fit badly.
#
# Whatever it is shown, the captioner names shapes, and its captions fit better than those that the
# scorer cannot read: neither says that nothing of it is there. The score itself does
# (docs/decisions/0067-pictures-of-another-world.md).


PICTURES = 64  # of a data set that are tried
# median log-odds: 1.5 in the world, -2 where it was cropped or is JPEG 60, -6 and less of other
# pictures
LEAST = -4.0


def world_fit(pictures: Sequence[Picture]) -> float:
    """Median of how well the captioner's long captions fit their pictures, (3, S, S) each."""
    from fulcrum.networks.captioner import load_captioner, load_scorer

    images = torch.from_numpy(np.stack(pictures))
    return float(load_scorer().score(images, load_captioner().write(images, "long")).median())


def foreign(pictures: Sequence[Picture]) -> str:
    """Why neither captioner nor scorer of the world can be believed of these pictures; empty: they
    can."""
    square = [picture for picture in pictures if picture.shape[1] == picture.shape[2]]
    if not square or (fit := world_fit(square[:PICTURES])) >= LEAST:
        return ""
    return (
        "warning: these pictures are not of the embedded world: captions of its own captioner fit"
        f" them by {fit:.1f} (median of {len(square[:PICTURES])}; in that world 1.5). What it"
        " writes of them names objects that are not there, and what its scorer says of them means"
        " nothing: use --model FOLDER of a vision-language model, and --score clip=FOLDER"
    )


def foreign_store(store: PictureStore) -> str:
    """Of pictures from all over a store."""
    rows = np.unique(np.linspace(0, len(store) - 1, min(PICTURES, len(store))).astype(int))
    return foreign([store.picture(int(row)) for row in rows])


# --------------------------------------------------------------------------------------------------
# A store captioned anew: the captioner is asked block by block, its answers are judged, and a new
# store holds them as columns with their provenance. The old captions stay, under their names.


QUARANTINE = "quarantine.jsonl"
BEGUN = BeginMark("caption.json", "captioner", "captioning")
BLOCK = 1024  # pictures of a block: what a killed command loses at most
HOW = ("batch", "block", "device")  # of a wish: how it is worked at, which decides nothing


@dataclass(frozen=True)
class Wish:
    """What is asked for. Rules do not decide the answers: they may change between two goes."""

    store: Path
    to: Path
    model: str
    name: str  # of the columns: NAME_long, NAME_short, ...
    prompts: tuple[CaptionPrompt, ...]
    settings: Settings = Settings()
    scorer: str = ""
    least_score: float | None = None
    rules: CaptionRules = CaptionRules()
    keep_all: bool = False  # pictures without a good caption stay, without it
    batch: int = 64
    block: int = BLOCK
    limit: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.least_score is not None and not self.scorer:
            raise BadInput(
                "--least-score needs somebody who scores",
                "such as --score world, or --score clip=FOLDER",
            )
        if not self.name.isidentifier():
            raise BadInput(
                f"columns cannot be called '{self.name}'",
                "letters, digits and underscores: --name recap",
            )

    def columns(self) -> dict[str, str]:
        """Style -> name of its column."""
        return {prompt.style: f"{self.name}_{prompt.style}" for prompt in self.prompts}

    def request(self, parent: str) -> str:
        """Hash of all that decides the new store, its parent's content among it."""
        decides = {
            name: value for name, value in asdict(self).items() if name not in ("store", "to", *HOW)
        }
        return sha256_json({**decides, "parent": parent})


class Written(NamedTuple):
    #: what store.json says: columns, statistics before and after, quarantined answers
    about: dict[str, Any]
    busy: float | None  # share of the time that the network worked; None: nothing was asked


class Recaption:
    """One go at captioning a store; the same wish again goes on."""

    def __init__(self, wish: Wish, say: Say, open_score: OpenScore = open_world_scorer) -> None:
        self.wish, self.say, self.open_score = wish, say, open_score
        self.store = PictureStore(local_folder(wish.store))
        self.done = made_already(wish.to, wish.request(self.store.about["content"]), BEGUN, say)
        self.partial = partial_of(wish.to)
        taken = sorted(set(wish.columns().values()) & set(self.store.about["captions"]))
        if taken:
            raise BadInput(
                f"{wish.store} has captions called '{taken[0]}' already",
                "nothing is overwritten: --name OTHER",
            )
        self.blocks = Blocks(self.store, self.partial, wish.block, wish.limit)
        self.asking: Asking | None = None

    def ask(
        self, number: int = 0, of: int = 1, open_it: Callable[[], Captioner] | None = None
    ) -> None:
        """Make the blocks that are missing, of every `of`-th; several processes and machines may
        share a folder."""
        if self.done is not None:
            return
        wish = self.wish
        styles = [prompt.style for prompt in wish.prompts]
        opened = (
            open_it() if open_it else open_captioner(wish.model, wish.device, wish.settings, styles)
        )
        self._same_order(opened.facts)
        missing = self.blocks.missing(number, of)
        done = len(range(number, len(self.blocks), of)) - len(missing)
        if done:
            self.say(f"going on after {done:,} blocks of {wish.block:,} pictures")
        score = self.open_score(wish.scorer)
        self.asking = Asking(self.blocks, opened, wish.prompts, score, wish.batch)
        self.asking.run(missing, self.say)

    def _same_order(self, facts: dict[str, Any]) -> None:
        """What decides the answers stands in the unfinished folder; another wish does not mix with
        it."""
        wish, path = self.wish, self.partial / BEGUN.name
        asked = {
            "parent": self.store.about["content"],
            "captioner": facts,
            "prompts": {prompt.style: [prompt.version, prompt.text] for prompt in wish.prompts},
            "scorer": wish.scorer,
            "name": wish.name,
            "block": wish.block,
            "limit": wish.limit,
        }
        require_begun(self.partial, BEGUN)
        self.partial.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_atomic(path, json.dumps({**asked, "begun": _now()}, sort_keys=True))
        written = read_json(path, f"remove {self.partial} and begin anew")
        if {name: written.get(name) for name in asked} != json.loads(json.dumps(asked)):
            other = next(
                name for name in asked if written.get(name) != json.loads(json.dumps(asked[name]))
            )
            raise BadInput(
                f"{self.partial} holds unfinished captions with another {other}",
                "start it with the same settings, or remove that folder",
            )

    def complete(self) -> Written:
        """Judge the answers and write the new store, which then appears at once."""
        if self.done is not None:
            return Written(self.done, None)
        missing = self.blocks.missing()
        if missing:
            raise BadInput(
                f"{len(missing):,} of {len(self.blocks):,} blocks are not captioned yet",
                "start the same command again; without --part it does what is left",
            )
        wish = self.wish
        with atomic_file(self.partial / QUARANTINE) as quarantine:
            judging = Judging(
                self.store,
                self.blocks,
                wish.columns(),
                wish.rules,
                wish.least_score,
                wish.keep_all,
                quarantine,
            )
            about = derive(
                self.store,
                self.partial,
                judging.decided,
                lambda: self._about(judging),
                False,
                self.say,
            )
        rename_folder(self.partial, wish.to)
        tidy(wish.to, BEGUN)
        asked = self.asking
        return Written(about, asked.busy / asked.seconds if asked and asked.asked else None)

    def finished(self, ask: Callable[[], None]) -> Written:
        """All of it, for one command at a time, asking as the caller wants it; nothing where it is
        done already."""
        if self.done is not None:
            return self.complete()
        with unfinished(self.wish.to, BEGUN, ANSWERS):
            ask()
            return self.complete()

    def _about(self, judging: Judging) -> dict[str, Any]:
        """Of each new column who wrote it, when, how, and what passed; told in store.json and on
        the card."""
        wish, order = self.wish, read_json(self.partial / BEGUN.name, "")
        shared = {
            "begun": order["begun"],
            "finished": _now(),
            "rules": asdict(wish.rules),
            "scorer": wish.scorer,
            "least_score": wish.least_score,
            "parent": self.store.about["content"],
        }
        columns = {
            wish.columns()[prompt.style]: {**provenance(order["captioner"], prompt), **shared}
            for prompt in wish.prompts
        }
        return {
            "generator": "fulcrum caption",
            REQUEST: wish.request(self.store.about["content"]),
            "columns": {**self.store.about.get("columns", {}), **columns},
            "caption_statistics": judging.statistics(),
            "quarantined_answers": dict(sorted(judging.found.items())),
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --------------------------------------------------------------------------------------------------
# Many processes ask about one store: on this machine, or on Ray workers that see its folder. What
# one that is lost leaves undone is done here at the end: blocks are files, and nothing lives in a
# worker.


def ask_part(
    wish: Wish, number: int, of: int, threads: int, open_score: OpenScore = open_world_scorer
) -> int:
    """In a process of its own: every `of`-th block; returns how many pictures were asked about."""
    import torch

    torch.set_num_threads(threads)
    if wish.device == "cuda":
        # each has its own, while there are some
        torch.cuda.set_device(number % torch.cuda.device_count())
    go = Recaption(wish, _silent, open_score)
    go.ask(number, of)
    return go.asking.asked if go.asking else 0


def ask_with_processes(go: Recaption, processes: int) -> None:
    """This process and others beside it."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, cores() // processes)
    others = [
        context.Process(
            target=ask_part, args=(go.wish, number, processes, threads, go.open_score), daemon=True
        )
        for number in range(1, processes)
    ]
    for other in others:
        other.start()
    try:
        go.ask(0, processes)
        for other in others:
            other.join()
            if other.exitcode:
                go.say(f"a process ended with code {other.exitcode}; its blocks are made here")
    finally:
        for other in others:
            if other.is_alive():
                other.terminate()  # its finished blocks are kept
    if go.blocks.missing():
        go.ask()


def ask_on_ray(go: Recaption, processes: int, address: str = "") -> None:
    """Ray workers, each with a part; this process only waits, then makes what is missing."""
    try:
        import ray as found_ray
    except ImportError:
        raise BadInput(
            "Ray is not installed", f"{install_extra('ray')}, or leave --ray out"
        ) from None
    ray: Any = found_ray
    address = address or os.environ.get("RAY_ADDRESS", "")
    own: dict[str, Any] = {} if address else {"num_cpus": processes, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"cannot join the Ray cluster at {address}: {error}", "start it with: ray start --head"
        ) from None
    try:
        wish = replace(go.wish, store=go.wish.store.absolute(), to=go.wish.to.absolute())
        gpus = 1 if wish.device == "cuda" else 0
        task = ray.remote(ask_part).options(num_cpus=1, num_gpus=gpus, max_retries=2)
        parts = [
            task.remote(wish, number, processes, 1, go.open_score) for number in range(processes)
        ]
        for number, part in enumerate(parts):
            try:
                ray.get(part)
            except Exception as error:  # Ray wraps whatever went wrong over there
                go.say(
                    f"part {number} failed on Ray ({str(error).splitlines()[-1][:200]}); its blocks"
                    " are made here"
                )
    finally:
        ray.shutdown()
    if go.blocks.missing():
        go.ask()


def _silent(_: str) -> None:
    pass
