"""A store captioned anew: the captioner is asked block by block, its answers are judged, and a new store holds them as
columns with their provenance. The old captions stay, under their names."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.caption.answer_blocks import ANSWERS, Asking, Blocks
from fulcrum.caption.captioner import Captioner, Settings, open_captioner, provenance
from fulcrum.caption.judging import Judging
from fulcrum.caption.pair_fit import Score, open_scorer
from fulcrum.caption.prompts import CaptionPrompt
from fulcrum.data.caption_quality import CaptionRules
from fulcrum.data.stores.derived_store import REQUEST, derive, made_already, partial_of, tidy, unfinished
from fulcrum.data.stores.picture_store import PictureStore, local_folder
from fulcrum.files.atomic import atomic_file, rename_folder, write_atomic
from fulcrum.files.folders import BeginMark, require_begun
from fulcrum.files.sealed import read_json, sha256_json
from fulcrum.spec.errors import BadInput

QUARANTINE = "quarantine.jsonl"
BEGUN = BeginMark("caption.json", "captioner", "captioning")
BLOCK = 1024  # pictures of a block: what a killed command loses at most
HOW = ("batch", "block", "device")  # of a wish: how it is worked at, which decides nothing
Say = Callable[[str], None]


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
            raise BadInput("--least-score needs somebody who scores", "such as --score world, or --score clip=FOLDER")
        if not self.name.isidentifier():
            raise BadInput(f"columns cannot be called '{self.name}'", "letters, digits and underscores: --name recap")

    def columns(self) -> dict[str, str]:
        """Style -> name of its column."""
        return {prompt.style: f"{self.name}_{prompt.style}" for prompt in self.prompts}

    def request(self, parent: str) -> str:
        """Hash of all that decides the new store, its parent's content among it."""
        decides = {name: value for name, value in asdict(self).items() if name not in ("store", "to", *HOW)}
        return sha256_json({**decides, "parent": parent})


class Written(NamedTuple):
    about: dict[str, Any]  # what store.json says: columns, statistics before and after, quarantined answers
    busy: float | None  # share of the time that the network worked; None: nothing was asked


class Recaption:
    """One go at captioning a store; the same wish again goes on."""

    def __init__(self, wish: Wish, say: Say) -> None:
        self.wish, self.say = wish, say
        self.store = PictureStore(local_folder(wish.store))
        self.done = made_already(wish.to, wish.request(self.store.about["content"]), BEGUN, say)
        self.partial = partial_of(wish.to)
        taken = sorted(set(wish.columns().values()) & set(self.store.about["captions"]))
        if taken:
            raise BadInput(f"{wish.store} has captions called '{taken[0]}' already", "nothing is overwritten: --name OTHER")
        self.blocks = Blocks(self.store, self.partial, wish.block, wish.limit)
        self.asking: Asking | None = None

    def ask(self, number: int = 0, of: int = 1, open_it: Callable[[], Captioner] | None = None) -> None:
        """Make the blocks that are missing, of every `of`-th; several processes and machines may share a folder."""
        if self.done is not None:
            return
        wish = self.wish
        styles = [prompt.style for prompt in wish.prompts]
        opened = open_it() if open_it else open_captioner(wish.model, wish.device, wish.settings, styles)
        self._same_order(opened.facts)
        missing = self.blocks.missing(number, of)
        done = len(range(number, len(self.blocks), of)) - len(missing)
        if done:
            self.say(f"going on after {done:,} blocks of {wish.block:,} pictures")
        score: Score | None = open_scorer(wish.scorer)
        self.asking = Asking(self.blocks, opened, wish.prompts, score, wish.batch)
        self.asking.run(missing, self.say)

    def _same_order(self, facts: dict[str, Any]) -> None:
        """What decides the answers stands in the unfinished folder; another wish does not mix with it."""
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
            other = next(name for name in asked if written.get(name) != json.loads(json.dumps(asked[name])))
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
                self.store, self.blocks, wish.columns(), wish.rules, wish.least_score, wish.keep_all, quarantine
            )
            about = derive(self.store, self.partial, judging.decided, lambda: self._about(judging), False, self.say)
        rename_folder(self.partial, wish.to)
        tidy(wish.to, BEGUN)
        asked = self.asking
        return Written(about, asked.busy / asked.seconds if asked and asked.asked else None)

    def finished(self, ask: Callable[[], None]) -> Written:
        """All of it, for one command at a time, asking as the caller wants it; nothing where it is done already."""
        if self.done is not None:
            return self.complete()
        with unfinished(self.wish.to, BEGUN, ANSWERS):
            ask()
            return self.complete()

    def _about(self, judging: Judging) -> dict[str, Any]:
        """Of each new column who wrote it, when, how, and what passed; told in store.json and on the card."""
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
            wish.columns()[prompt.style]: {**provenance(order["captioner"], prompt), **shared} for prompt in wish.prompts
        }
        return {
            "generator": "fulcrum caption",
            REQUEST: wish.request(self.store.about["content"]),
            "columns": {**self.store.about.get("columns", {}), **columns},
            "caption_statistics": judging.statistics(),
            "quarantined_answers": dict(sorted(judging.found.items())),
        }


def recaption(wish: Wish, say: Say, open_it: Callable[[], Captioner] | None = None) -> Written:
    """All of it, in this process."""
    go = Recaption(wish, say)
    return go.finished(lambda: go.ask(open_it=open_it))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
