"""Reads the shipped frozen parts: tensors and card, verified by checksum before anyone uses them.

`asset_hash` needs no torch, so that a run's key costs nothing; `shipped` and `load` bring torch
when they are called. Each network's own file has its loader: load_codec, load_text, load_teacher,
load_judge, load_second_judge, load_features.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fulcrum.files.sealed import sha256_bytes, sha256_json
from fulcrum.spec.errors import RunFailed

if TYPE_CHECKING:
    from torch import Tensor, nn

    Network = TypeVar("Network", bound=nn.Module)

NAMES = (
    "codec",
    "text",
    "judge",
    "features",
    "teacher",
    "teacher_supervised",
    "score",
    "codec_wide",
    "codec_aligned",
    "judge_second",
    "captioner",
)
MEND = "reinstall the package, or in a clone run: python -m tools.assets"


class AssetError(RunFailed):
    """A shipped part is missing, damaged, or not what its card says."""


@dataclass(frozen=True)
class Shipped:
    """One frozen part as it lies in the package."""

    tensors: dict[str, Tensor]
    card: dict[str, Any]
    sha256: str


def _folder(folder: Path | None) -> Traversable:
    return files("fulcrum.networks").joinpath("assets") if folder is None else folder


def card(name: str, folder: Path | None = None) -> dict[str, Any]:
    """The facts that travel with a part."""
    where = _folder(folder).joinpath(f"{name}.json")
    if not where.is_file():
        raise AssetError(
            f"no card for the part {name!r}: expected {name}.json beside {name}.safetensors",
            f"shipped parts are {', '.join(NAMES)}; {MEND}",
        )
    try:
        facts = json.loads(where.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AssetError(f"the card {name}.json is not JSON ({error})", MEND) from error
    missing = {"sha256", "bytes", "kind", "config"} - set(facts)
    if missing:
        raise AssetError(f"the card {name}.json lacks {', '.join(sorted(missing))}", MEND)
    return dict(facts)


def asset_hash(name: str, folder: Path | None = None) -> str:
    """What a run's key uses: weights, kind and configuration (the vocabulary's order counts
    too)."""
    facts = card(name, folder)
    return sha256_json([facts["sha256"], facts["kind"], facts["config"]])


def shipped(name: str, folder: Path | None = None) -> Shipped:
    """Tensors and card of a part; refuses a file whose bytes are not those that the card names."""
    from safetensors.torch import load

    facts = card(name, folder)
    where = _folder(folder).joinpath(f"{name}.safetensors")
    if not where.is_file():
        raise AssetError(f"the part {name!r} has a card but no {name}.safetensors", MEND)
    data = where.read_bytes()
    content = sha256_bytes(data)
    if len(data) != facts["bytes"] or content != facts["sha256"]:
        raise AssetError(
            f"{name}.safetensors is not the file its card describes: expected {facts['bytes']}"
            f" bytes with sha256 {facts['sha256'][:16]}..., found {len(data)} bytes with"
            f" {content[:16]}...",
            MEND,
        )
    return Shipped(load(data), facts, content)


def load(name: str, kind: type[Network], folder: Path | None) -> Network:
    """Build from the card's configuration, fill with the shipped weights (fp32), freeze."""
    part = shipped(name, folder)
    if part.card["kind"] != kind.__name__:
        raise AssetError(
            f"expected {name!r} to be a {kind.__name__}, its card says {part.card['kind']!r}", MEND
        )
    network = kind(**part.card["config"])
    wanted, given = set(network.state_dict()), set(part.tensors)
    if wanted != given:
        raise AssetError(
            f"{name}.safetensors does not fit {kind.__name__}: missing"
            f" {sorted(wanted - given)[:3]}, unexpected {sorted(given - wanted)[:3]}",
            MEND,
        )
    network.load_state_dict(part.tensors)  # copies into the network's own fp32 tensors
    return network.eval().requires_grad_(False)
