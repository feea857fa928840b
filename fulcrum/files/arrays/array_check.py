"""Is a whole entry of the array store what was written, to the last byte? Reading it verifies only what is asked for."""

from pathlib import Path

from fulcrum.files.arrays.array_records import HEADER
from fulcrum.files.arrays.array_store import open_entry
from fulcrum.files.damaged import Damaged
from fulcrum.files.hashes import sha256_json
from fulcrum.files.sealed import SEAL, read_sealed


def require_sound(folder: Path) -> int:
    """The bytes of its arrays; Damaged, saying what is wrong, unless every one of them has its checksum."""
    if folder.is_symlink() or not folder.is_dir():
        raise Damaged(f"{folder} is no folder, expected a cache entry")
    facts = read_sealed(folder / HEADER, "", SEAL, kind=Damaged).get("facts")
    if not isinstance(facts, dict) or f"{facts.get('kind')}-{sha256_json(facts, 32)}" != folder.name:
        raise Damaged(f"{folder} is not called after the facts in its {HEADER}")
    arrays = open_entry(folder, facts)
    for array in arrays.values():
        array.verify_all()
    return sum(array.nbytes for array in arrays.values())
