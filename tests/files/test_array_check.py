"""An entry of the array store is sound to the last byte, or it is said what is wrong with it."""

import json
from pathlib import Path

import pytest

from fulcrum.files.array_store import require_sound
from fulcrum.files.paths import Damaged
from fulcrum.files.sealed import SEAL, sealed
from tests.files.small_arrays import entry, get, whole


def test_a_sound_entry_tells_its_bytes(tmp_path: Path) -> None:
    get(tmp_path)
    assert require_sound(entry(tmp_path)) == sum(rows.nbytes for rows in whole().values())


def test_links_files_and_what_is_called_otherwise_are_no_entries(tmp_path: Path) -> None:
    get(tmp_path)
    folder = entry(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "file").write_text("")
    for name in ("link", "file", "nothing"):
        with pytest.raises(Damaged, match=f"{name} is no folder, expected a cache entry"):
            require_sound(tmp_path / name)
    header = json.loads((folder / "header.json").read_text())
    for facts in ([], None, {**header["facts"], "a": 2}):
        (folder / "header.json").write_text(json.dumps(sealed({**header, "facts": facts}, SEAL)))
        with pytest.raises(Damaged, match="is not called after the facts"):
            require_sound(folder)
    (folder / "header.json").write_text(json.dumps(header))
    moved = folder.rename(folder.with_name("thing-" + "0" * 32))
    with pytest.raises(Damaged, match="is not called after the facts"):
        require_sound(moved)


@pytest.mark.parametrize("name", ["rows", "packed", "lengths", "once"])
def test_one_flipped_bit_is_found_in_every_array(tmp_path: Path, name: str) -> None:
    get(tmp_path)
    path = entry(tmp_path) / f"{name}.00000.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="a bit has changed"):
        require_sound(entry(tmp_path))
