"""Shipped parts: cards match files, damage is refused, and the hash for run keys needs no torch."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fulcrum.networks
from fulcrum.files.shipped import NAMES, AssetError, asset_hash, card, shipped
from fulcrum.networks.codec import load_codec

FOLDER = Path(fulcrum.networks.__file__).parent / "assets"


@pytest.mark.parametrize("name", NAMES)
def test_card_matches_file(name: str) -> None:
    part = shipped(name)
    data = (FOLDER / f"{name}.safetensors").read_bytes()
    assert part.sha256 == part.card["sha256"] == hashlib.sha256(data).hexdigest()
    assert (
        part.card["bytes"] == len(data)
        and part.card["licence"] == "Apache-2.0"
        and part.card["name"] == name
    )
    assert part.card["quality"]["split"] == "validation" and part.card["built"]["split"] == "assets"
    assert all(torch.isfinite(value.float()).all() for value in part.tensors.values())


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 20_000_000


def copied(folder: Path) -> Path:
    for suffix in ("safetensors", "json"):
        shutil.copy(FOLDER / f"codec.{suffix}", folder)
    return folder


def test_a_tampered_file_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path) / "codec.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 4
    path.write_bytes(data)
    with pytest.raises(
        AssetError, match="not the file its card describes(.|\n)*python -m tools.assets"
    ):
        load_codec(folder=tmp_path)


def test_a_missing_file_card_or_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="shipped parts are codec, text"):
        shipped("kodec")
    copied(tmp_path)
    (tmp_path / "codec.safetensors").unlink()
    with pytest.raises(AssetError, match="no codec.safetensors"):
        shipped("codec", tmp_path)
    (tmp_path / "codec.json").write_text("{")
    with pytest.raises(AssetError, match="not JSON"):
        asset_hash("codec", tmp_path)
    (tmp_path / "codec.json").write_text("{}")
    with pytest.raises(AssetError, match="lacks bytes, config, kind, sha256"):
        asset_hash("codec", tmp_path)


def test_a_card_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = copied(tmp_path) / "codec.json"
    content = card("codec")
    path.write_text(json.dumps({**content, "kind": "Teacher"}))
    with pytest.raises(AssetError, match="to be a KLCodec"):
        load_codec(folder=tmp_path)
    # the key sees more than the weights
    assert asset_hash("codec", tmp_path) != asset_hash("codec")


def test_the_hash_needs_no_torch() -> None:
    code = (
        "import sys; from fulcrum.files.shipped import asset_hash; print(asset_hash('codec')); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == asset_hash("codec")
