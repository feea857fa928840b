"""Reads a pretrained class from its folder: local safetensors only, fp32, every weight accounted for, frozen."""

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fulcrum.encode.pretrained.folder import weight_files
from fulcrum.spec.errors import BadInput, install_extra


def read(library: str, network: str, folder: Path, half: bool = False, **more: Any) -> nn.Module:
    """`library.network.from_pretrained(folder)`, refused when a weight is missing, left over or of another shape.

    `half`: the folder holds a larger model, of which this class reads its part; then weights may be left over.
    """
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
    home = "transformers.models.t5gemma.modeling_t5gemma" if network == "T5GemmaEncoder" else library
    try:
        return getattr(importlib.import_module(home), network)
    except ImportError:
        raise BadInput(f"{network} needs the package {library}", install_extra("diffusers")) from None
    except AttributeError:
        raise BadInput(f"the installed {library} has no {network}", f"install a newer {library}") from None


def _accounted(network: str, folder: Path, info: dict[str, Any], half: bool) -> None:
    """A weight that was not in the files is random, one that is left over was meant for another network: their loaders
    only log both. FLUX.2's autoencoder loads through FLUX.1's class that way, and gives another latent space."""
    for what in ("missing_keys", "mismatched_keys", *(() if half else ("unexpected_keys",))):
        if info.get(what):
            names = sorted(map(str, info[what]))
            raise BadInput(
                f"the weights in {folder} do not fit {network}: {len(names)} {what.replace('_', ' ')}, such as {names[0]}",
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
