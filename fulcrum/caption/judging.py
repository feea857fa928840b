"""Answers become captions or are quarantined: block by block, counted as they pass, so that memory does not grow."""

import json
from collections import Counter
from typing import IO, Any

from fulcrum.caption.answer_blocks import Blocks
from fulcrum.data.caption_quality import CaptionCounter, CaptionRules
from fulcrum.data.stores.derived_store import Decided
from fulcrum.data.stores.picture_store import PictureStore

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
            return Decided("quarantined", f"no good caption, {fault.split(':')[0]}: {self.columns[style]}, {fault}")
        new = {self.columns[style]: [text] for style, (text, fault, _) in judged.items() if not fault}
        return Decided("kept", captions={**captions, **new})

    def statistics(self) -> dict[str, Any]:
        return {
            "before": {name: one.numbers() for name, one in self.before.items()},
            "after": {name: one.numbers() for name, one in self.after.items()},
        }

    def _judged(self, row: int) -> Judged:
        number = row // self.blocks.size
        if number != self.number:
            self.number, self.block = number, {line["row"]: line for line in self.blocks.read(number) or ()}
        judged: Judged = {}
        for style, (text, ended, score) in self.block[row]["answers"].items():
            fault = self._fault(text, ended, score, style)
            judged[style] = (text, fault, score)
            if fault:
                self.found[f"{style}: {fault.split(':')[0]}"] += 1
                record = {"row": row, "name": self.store.name(row), "style": style, "text": text, "reason": fault}
                self.quarantine.write(f"{json.dumps(record)}\n".encode())
        return judged

    def _fault(self, text: str, ended: bool, score: float | None, style: str) -> str:
        fault = self.rules.fault(text, style)
        if not fault and not ended:
            fault = "cut off: no end within the most tokens"
        if not fault and self.least_score is not None and (score is None or not score >= self.least_score):
            fault = f"score: {'none' if score is None else f'{score:.3g}'}, at least {self.least_score:g}"
        return fault
