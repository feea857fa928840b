"""Our KL codec as a folder of diffusers' AutoencoderKL. Graph and names are the same: it is a copy."""

import json
from pathlib import Path

from safetensors.torch import save_file

from fulcrum.files.atomic import atomic_path, write_atomic
from fulcrum.interop.diffusers import CONFIG, MADE_FOR, WEIGHTS
from fulcrum.networks.codec import KLCodec


def export_codec(codec: KLCodec, folder: Path) -> Path:
    """Write config.json and the weights; the latents of what is written need no scale and no shift."""
    codec = codec.folded()
    config = {"_class_name": "AutoencoderKL", "_diffusers_version": MADE_FOR, **codec.diffusers_config()}
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in codec.state_dict().items()}
    with atomic_path(folder / WEIGHTS) as aside:
        save_file(weights, aside, metadata={"format": "pt"})
    write_atomic(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
    return folder
