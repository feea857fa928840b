"""Where a pretrained part lies, and the hash of what lies there. No torch; nothing asks a hub unless `hub:` is written.

/data/vae                      a folder with config.json and safetensors, or a pipeline's folder that holds vae/
org/name                       the hub's local cache only
hub:org/name[/part][@revision] the hub's local cache, then the hub
pip:package                    an installed package that is known to carry a network: see registry.py
"""

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.noted_hashes import file_hash
from fulcrum.files.paths import at_home
from fulcrum.files.sealed import read_json, sha256_json
from fulcrum.spec.errors import BadInput, install_extra, shown

CONFIG = "config.json"
STEMS = ("diffusion_pytorch_model", "model")  # how diffusers and transformers call their weights
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "tokenizer.model",
)
HUB = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(/(?P<part>\w[\w-]*))?(@(?P<revision>\w[\w.-]*))?")


class HubId(NamedTuple):
    """What a hub id names."""

    repo: str
    part: str | None
    revision: str | None


def absolute(path: str) -> str:
    """A folder's path so that another working directory finds it too; ids stay as they are."""
    return str(at_home(path).resolve()) if path and at_home(path).exists() else path


def locate(path: str, parts: tuple[str, ...], online: bool = True) -> Path:
    """The folder that holds config.json; `parts` are the names it may have inside a pipeline's folder.

    `online` False: not even a `hub:` id is asked for over the network.
    """
    if path.startswith("pip:"):
        from fulcrum.encode.pretrained.registry import package_folder

        return _inside(package_folder(path), parts)
    own = at_home(path)
    if own.is_dir():
        return _inside(own.resolve(), parts)
    asks = online and path.startswith("hub:")
    named = HUB.fullmatch(path.removeprefix("hub:"))
    if named is None or path.startswith((".", "/", "~")):
        raise BadInput(
            f"there is no folder at {own.absolute()}",
            "give a folder with config.json and safetensors, or hub:org/name to ask the hub",
        )
    hub_id = HubId(named["repo"], named["part"], named["revision"])
    wanted = (hub_id.part,) if hub_id.part else parts
    try:
        folder = _inside(_snapshot(hub_id, wanted, online=False), wanted, hub_id.part is None)
        weight_files(folder)
        return folder
    except BadInput as error:
        if not asks:
            raise BadInput(
                f"{path} is neither a folder (looked at {own.absolute()}) nor complete in the hub's cache "
                f"({error.message})",
                "nothing asks a hub by itself: write hub:org/name to allow it",
            ) from None
    print(f"asking the hub for {shown(hub_id.repo)}", file=sys.stderr, flush=True)
    return _inside(_snapshot(hub_id, wanted, online=True), wanted, hub_id.part is None)


def _snapshot(hub_id: HubId, parts: tuple[str, ...], online: bool) -> Path:
    try:
        from huggingface_hub import constants, snapshot_download
    except ImportError:
        raise BadInput("hub ids need the package huggingface_hub", install_extra("diffusers")) from None
    patterns = [
        *(f"{part}/*" for part in parts),
        "tokenizer*/*",
        *TOKENIZER,
        CONFIG,
        "model_index.json",
        "*.index.json",
        "preprocessor_config.json",
        "README.md",
        "LICENSE*",
        *(f"{stem}*.safetensors" for stem in STEMS),
    ]
    try:
        return Path(
            snapshot_download(
                hub_id.repo,
                revision=hub_id.revision,
                allow_patterns=patterns,
                ignore_patterns=list(PICKLES),
                local_files_only=not online,
            )
        )
    except Exception as error:  # the hub's library raises a dozen kinds
        what = "the hub did not give" if online else "no copy of"
        raise BadInput(
            f"{what} {hub_id.repo} ({type(error).__name__}); looked in {constants.HF_HUB_CACHE}",
            "download it once where there is a network, or give a folder",
        ) from None


def _inside(folder: Path, parts: tuple[str, ...], itself: bool = True) -> Path:
    looked = [*([folder] if itself else []), *(folder / part for part in parts)]
    for place in looked:
        if (place / CONFIG).is_file():
            return place
    raise BadInput(
        f"no {CONFIG} there; looked at " + ", ".join(str(place / CONFIG) for place in looked),
        "expected what save_pretrained writes: config.json beside safetensors",
    )


def config_of(folder: Path) -> dict[str, Any]:
    """What a folder's config.json says."""
    return read_json(folder / CONFIG, "expected what save_pretrained writes")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a folder, with their index when there are several; pickles are refused."""
    looked = []
    for stem in STEMS:
        whole, index = folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json"
        looked += [whole.name, index.name]
        if whole.is_file():
            return [whole]
        if index.is_file():
            return [index, *_shards(index)]
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise BadInput(
            f"{folder} holds only pickled weights: {', '.join(pickles[:3])}",
            "a pickle can run code when it is read: convert it once where you trust it, with save_pretrained",
        )
    raise BadInput(f"no weights in {folder}: looked for {', '.join(looked)}", "expected what save_pretrained writes")


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(index, "expected safetensors' index")["weight_map"].values()))
    except (KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{index} cannot be read: {type(error).__name__}: {error}", "expected safetensors' index") from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise BadInput(f"{index} names {name!r}", "shards are safetensors beside their index")
        if not (index.parent / name).is_file():
            raise BadInput(
                f"{index} names {name}, which is not there; looked at {index.parent / name}", "complete the download"
            )
    return [index.parent / name for name in names]


def tokenizer_of(folder: Path) -> Path:
    """Where an encoder's tokenizer lies: in its folder, or beside it as pipelines keep it."""
    looked = [folder, folder.parent / folder.name.replace("text_encoder", "tokenizer")]
    for place in looked:
        if any(
            (place / name).is_file()
            for name in ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model")
        ):
            return place
    raise BadInput(
        "no tokenizer beside the text encoder; looked in " + ", ".join(map(str, dict.fromkeys(looked))),
        "save it there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
    )


def content_hash(folder: Path, others: tuple[Path, ...] = (), fresh: bool = False) -> str:
    """Config and weights (and other files), whatever the folder is called and wherever it lies."""
    files = [
        ("config", folder / CONFIG),
        *((path.name, path) for path in weight_files(folder)),
        *((f"beside:{path.name}", path) for path in others),
    ]
    return sha256_json([[name, file_hash(path, fresh)] for name, path in sorted(files)])


def tokenizer_files(folder: Path) -> tuple[Path, ...]:
    place = tokenizer_of(folder)
    return tuple(place / name for name in TOKENIZER if (place / name).is_file())


def licence_of(folder: Path) -> str:
    """What the folder itself says about its licence."""
    for place in (folder, folder.parent):
        try:
            front = (place / "README.md").read_text(encoding="utf-8", errors="replace")[:4000]
        except OSError:
            front = ""
        for line in front.splitlines():
            if line.startswith(("license:", "license_name:")):
                return line.split(":", 1)[1].strip()
        for path in sorted(place.glob("LICENSE*")):
            return f"see {path.name}"
    return "not stated in the folder: ask where it came from"
