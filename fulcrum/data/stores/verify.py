"""Is an imported store what was written, sample by sample? All faults are found and named, not only
the first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fulcrum.data.stores.importing import faults as ledger_faults
from fulcrum.data.stores.picture_store import (
    CARD,
    LEDGER,
    LINES,
    SHARDS,
    TABLES,
    PictureStore,
    content_of,
    file_fault,
    read_about,
    texts_hash,
)
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import read_json, read_records, sha256_json
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.progress import Tally

Say = Callable[[str], None]


def check(folder: Path, say: Say | None = None) -> dict[str, Any]:
    """Checksums of tables, shards and pictures; every picture decoded, every caption read; the
    ledger's sums; the card."""
    about, looked_at = read_about(folder), 0
    faults = _files(folder, {name: about["tables"][name] for name in TABLES})
    if not faults:  # without its tables nothing can be looked up
        store = PictureStore(folder, verify=False)
        looked_at = len(store)
        if content_of(store.rows, texts_hash(about["tables"]), store.buckets) != about["content"]:
            faults.append("store.json: its content hash is not that of the tables")
        faults += _ledger(folder, about, looked_at)
        faults += _card(folder, about)
        faults += _shards(folder, about)
        faults += _samples(store, say)
    return {
        "sound": not faults,
        "samples": about["count"],
        "looked_at": looked_at,
        "content": about["content"],
        "faults": faults,
    }


def _files(folder: Path, written: dict[str, Any]) -> list[str]:
    faults = {name: file_fault(folder / name, facts) for name, facts in written.items()}
    return [f"{name}: {fault}" for name, fault in faults.items() if fault]


def _ledger(folder: Path, about: dict[str, Any], samples: int) -> list[str]:
    try:
        ledger = read_json(folder / LEDGER, "")
        if sha256_json(ledger) != about["ledger"]:
            return ["ledger.json was changed after it was written"]
        lines = read_records(folder / LINES).require_good("")
        faults = ledger_faults(ledger, samples)
        for outcome in ("dropped", "quarantined"):
            named = sum(line["outcome"] == outcome for line in lines)
            if named != ledger[outcome]:
                faults.append(
                    f"ledger.jsonl names {named:,} {outcome} samples, ledger.json counts"
                    f" {ledger[outcome]:,}"
                )
        return faults
    except (FulcrumError, OSError, KeyError) as error:
        return [f"the ledger cannot be read: {error}"]


def _card(folder: Path, about: dict[str, Any]) -> list[str]:
    try:
        card = read_json(folder / CARD, "")
    except FulcrumError as error:
        return [error.message]
    same = sha256_json(card) == about.get("card")
    return [] if same else [f"{CARD} was changed after it was written"]


def _shards(folder: Path, about: dict[str, Any]) -> list[str]:
    written = {shard["name"]: shard for shard in about["shards"]}
    strange = {path.name for path in (folder / SHARDS).iterdir()} - set(written)
    return _files(folder / SHARDS, written) + [
        f"{name}: a file that the import did not write" for name in sorted(strange)
    ]


def _samples(store: PictureStore, say: Say | None) -> list[str]:
    faults, tally = list[str](), Tally("checked", len(store), say, "samples")
    known = set(store.about["captions"])
    for done, row in enumerate(map(int, np.argsort(store.rows["shard"], kind="stable")), 1):
        try:
            store.picture(row)
            captions = store.captions(row)
            if (
                not captions
                or not set(captions) <= known
                or not all(text for texts in captions.values() for text in texts)
            ):
                faults.append(f"{store.name(row)}: its captions do not match the store")
        except (Damaged, OSError) as error:
            faults.append(str(getattr(error, "message", error)))
        except (ValueError, RecursionError):
            faults.append(f"{store.name(row)}: its captions cannot be read")
        tally.tell(done)
    return faults
