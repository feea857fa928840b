"""Is an imported store what was written, sample by sample? All faults are found and named, not only the first."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fulcrum.data.store.ledger import faults as ledger_faults
from fulcrum.data.store.picture_store import (
    CARD,
    LEDGER,
    LINES,
    SHARDS,
    TABLES,
    Damaged,
    PictureStore,
    content_of,
    digest,
    read_about,
    texts_hash,
)

Say = Callable[[str], None]
_STATED = ("kind", "content", "count", "size", "encoding", "splits", "captions")


def check(folder: Path, say: Say | None = None) -> dict[str, Any]:
    """Checksums of tables, shards and pictures; every picture decoded, every caption read; the ledger's sums; the card."""
    about, faults = read_about(folder), list[str]()
    for name in TABLES:
        told, path = about["tables"][name], folder / name
        if not path.is_file() or path.stat().st_size != told["bytes"]:
            faults.append(
                f"{name}: expected {told['bytes']:,} bytes, found "
                + (f"{path.stat().st_size:,}" if path.is_file() else "no file")
            )
        elif hashlib.sha256(path.read_bytes()).hexdigest() != told["sha256"]:
            faults.append(f"{name}: a bit has changed")
    if faults:  # without its tables nothing can be looked up
        return _report(about, faults, 0)
    store = PictureStore(folder, verify=False)
    if content_of(store.rows, texts_hash(about["tables"]), store.buckets) != about["content"]:
        faults.append("store.json: its content hash is not that of the tables")
    faults += _ledger(folder, about, len(store))
    faults += _card(folder, about)
    faults += _shards(folder, about)
    faults += _samples(store, say)
    return _report(about, faults, len(store))


def _report(about: dict[str, Any], faults: list[str], looked_at: int) -> dict[str, Any]:
    return {
        "sound": not faults,
        "samples": about["count"],
        "looked_at": looked_at,
        "content": about["content"],
        "faults": faults,
    }


def _ledger(folder: Path, about: dict[str, Any], samples: int) -> list[str]:
    try:
        ledger = json.loads((folder / LEDGER).read_text())
        if digest(ledger) != about["ledger"]:
            return ["ledger.json was changed after it was written"]
        lines = [json.loads(line) for line in (folder / LINES).read_text().splitlines()]
    except (OSError, ValueError, KeyError) as error:
        return [f"the ledger cannot be read: {error}"]
    found = ledger_faults(ledger, samples)
    for outcome in ("dropped", "quarantined"):
        named = sum(line["outcome"] == outcome for line in lines)
        if named != ledger[outcome]:
            found.append(f"ledger.jsonl names {named:,} {outcome} samples, ledger.json counts {ledger[outcome]:,}")
    return found


def _card(folder: Path, about: dict[str, Any]) -> list[str]:
    try:
        card = json.loads((folder / CARD).read_text())
    except (OSError, ValueError, RecursionError) as error:
        return [f"{CARD} cannot be read: {error}"]
    if "card" in about:
        same = digest(card) == about["card"]
    else:  # imported before its hash was kept: what both files state
        same = isinstance(card, dict) and all(card.get(name) == about[name] for name in _STATED)
    return [] if same else [f"{CARD} was changed after it was written"]


def _shards(folder: Path, about: dict[str, Any]) -> list[str]:
    found = []
    for shard in about["shards"]:
        path = folder / SHARDS / shard["name"]
        size = path.stat().st_size if path.is_file() else -1
        if size != shard["bytes"]:
            found.append(f"{shard['name']}: expected {shard['bytes']:,} bytes, found {size if size >= 0 else 'no file'}")
            continue
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != shard["sha256"]:
                found.append(f"{shard['name']}: a bit has changed")
    strange = {path.name for path in (folder / SHARDS).iterdir()} - {shard["name"] for shard in about["shards"]}
    return found + [f"{name}: a file that the import did not write" for name in sorted(strange)]


def _samples(store: PictureStore, say: Say | None) -> list[str]:
    found, begun, told = list[str](), time.monotonic(), time.monotonic()
    known = set(store.about["captions"])
    for row in np.argsort(store.rows["shard"], kind="stable"):
        row = int(row)
        try:
            store.picture(row)
            captions = store.captions(row)
            if not captions or not set(captions) <= known or not all(text for texts in captions.values() for text in texts):
                found.append(f"{store.name(row)}: its captions do not match the store")
        except (Damaged, OSError) as error:
            found.append(str(getattr(error, "message", error)))
        except (ValueError, UnicodeDecodeError):
            found.append(f"{store.name(row)}: its captions cannot be read")
        now = time.monotonic()
        if say and now - told > 2:
            told, done = now, (row + 1) / len(store)
            say(f"checked {row + 1:,} of {len(store):,}, about {(now - begun) * (1 - done) / done:.0f} s left")
    return found
