"""A store of pictures: every table, shard, picture and caption. What is damaged must be copied or imported again."""

from collections.abc import Callable
from pathlib import Path

from fulcrum.checkup.ailment import Ailment, Checkup, leftovers
from fulcrum.data.stores.picture_store import SHARDS
from fulcrum.data.stores.verify import check
from fulcrum.files.paths import Damaged

AGAIN = (
    "copy it again from where it came, or import the pictures anew into another folder: fulcrum data import PICTURES FOLDER"
)


def store_checkup(folder: Path, say: Callable[[str], None]) -> Checkup:
    left = leftovers(folder, folder / SHARDS)
    try:
        about = check(folder, say)
    except Damaged as error:
        return Checkup(folder, "data store", (), (Ailment(folder, error.message, AGAIN), *left))
    swept = {ailment.place.name for ailment in left}  # a strange file, and one that is known
    faults = [fault for fault in about["faults"] if fault.partition(":")[0] not in swept]
    ailments = (*(Ailment(folder, fault, AGAIN) for fault in faults), *left)
    sound = (f"{about['looked_at']:,} pictures with their captions, tables, shards, ledger and card",) if not faults else ()
    return Checkup(folder, "data store", sound, ailments)


def unfinished_import(folder: Path) -> Checkup:
    """An import that was stopped: it is neither damaged nor a store."""
    note = "an import that is not finished: start the same command again, it goes on"
    return Checkup(folder, "unfinished import", (), tuple(leftovers(folder)), (note,))
