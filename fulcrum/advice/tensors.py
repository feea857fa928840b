"""Stored tensors, model folders and codecs, as an audit reads them."""

import ast
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.advice.caption_sets import samples_of, square
from fulcrum.advice.scripts import Script, called, dotted, keyword, number, source_of
from fulcrum.files.paths import open_regular, read_regular
from fulcrum.networks.fillers import FolderCodec
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# Which range a script's pictures have where they are handed over: followed back through what leaves
# values as they are.


KEEPS = (
    "to",
    "float",
    "double",
    "cpu",
    "cuda",
    "detach",
    "contiguous",
    "clone",
    "flatten",
    "reshape",
    "view",
    "permute",
)
STEPS = 12


def signed_by(script: Script, given: ast.AST, where: ast.AST) -> str:
    """The code that leaves pictures in [-1, 1], with nothing behind it that moves them; empty where
    that is not sure."""
    for _ in range(STEPS):
        if (
            isinstance(given, ast.Name | ast.Attribute)
            and (former := _assigned(script, given, where)) is not None
        ):
            given = where = former
        elif isinstance(given, ast.Call):
            name = called(given)
            if name in ("clamp", "clip", "clamp_", "clip_"):
                return source_of(given, 60) if _limits(given) == (-1.0, 1.0) else ""
            if name in ("tanh", "tanh_"):
                return source_of(given, 60)
            if (
                name not in KEEPS
                or not isinstance(given.func, ast.Attribute)
                or script.cast_formats(given) & {"uint8"}
            ):
                return ""
            given = given.func.value
        elif (
            isinstance(given, ast.BinOp)
            and ast.unparse(given.right) in ("1", "1.0")
            and isinstance(given.op, ast.Sub)
        ):
            doubled = given.left  # x * 2 - 1
            factors = (doubled.left, doubled.right) if isinstance(doubled, ast.BinOp) else ()
            twice = (
                isinstance(doubled, ast.BinOp)
                and isinstance(doubled.op, ast.Mult)
                and 2.0 in map(number, factors)
            )
            return source_of(given, 60) if twice else ""
        elif _decoded(given):
            return f"{source_of(given, 60)}, as autoencoders of diffusers give them"
        else:
            return ""
    return ""


def _assigned(script: Script, name: ast.expr, where: ast.AST) -> ast.expr | None:
    """What a name was last given before a place of the same function; None where methods may have
    changed it in place."""
    home, line = script.function(where), getattr(where, "lineno", 0)
    if any(
        dotted(call.func).startswith(f"{dotted(name)}.") and dotted(call.func).endswith("_")
        for call in script.calls
    ):
        return None
    own = [
        value
        for value in script.assignments.get(dotted(name), ())
        if script.function(value) is home and value.lineno <= line and value is not where
    ]
    return own[-1] if own else None


def _limits(call: ast.Call) -> tuple[float | None, float | None]:
    given = (
        call.args
        if isinstance(call.func, ast.Attribute) and dotted(call.func.value) != "torch"
        else call.args[1:]
    )
    low = keyword(call, "min") or (given[0] if given else None)
    high = keyword(call, "max") or (given[1] if len(given) > 1 else None)
    return number(low), number(high)


def _decoded(given: ast.AST) -> bool:
    """`vae.decode(latents).sample`, or its first part."""
    inner = given.value if isinstance(given, ast.Attribute | ast.Subscript) else None
    first = (
        isinstance(given, ast.Subscript)
        and number(given.slice) == 0
        or isinstance(given, ast.Attribute)
        and given.attr == "sample"
    )
    name = dotted(inner.func).lower() if isinstance(inner, ast.Call) else ""
    return (
        first and name.endswith(".decode") and any(word in name for word in ("vae", "autoencoder"))
    )


# --------------------------------------------------------------------------------------------------
# A checkpoint by the headers of its safetensors files: names, formats and shapes, without reading a
# value.
#
# Values are read only when asked for, some of each tensor, through a memory map. Pickles are not
# opened: they run code.


MOST_HEADER = 100_000_000  # bytes; the format's own limit
BITS = {  # all that the format knows
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "F32": 32,
    "I32": 32,
    "U32": 32,
    "F16": 16,
    "BF16": 16,
    "I16": 16,
    "U16": 16,
    "I8": 8,
    "U8": 8,
    "BOOL": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}
# formats whose values can be looked at
READ = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}
LOW = ("BF16", "F16", "F8_E4M3", "F8_E5M2")
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")


class StoredTensor(NamedTuple):
    name: str
    format: str  # as safetensors writes it: F32, BF16
    shape: tuple[int, ...]
    file: Path
    offset: int  # of its first byte in the file

    @property
    def numbers(self) -> int:
        return prod(self.shape)


class StoredTensors(NamedTuple):
    path: Path
    tensors: list[StoredTensor]
    unread: list[tuple[Path, str]]  # files that could not be looked at, and why
    values: int = 0  # how many values of each tensor may be read; none: headers only
    rate: float | None = None  # learning rate that training goes on with, if it was told

    @property
    def formats(self) -> Counter[str]:
        """How many numbers stand in each format."""
        counts = Counter[str]()
        for one in self.tensors:
            counts[one.format] += one.numbers
        return counts

    def sample(self, tensor: StoredTensor) -> NDArray[np.float32]:
        """Some of its values, spread evenly; empty where values are not to be read."""
        count = min(self.values, tensor.numbers)
        if not count or tensor.format not in READ:
            return np.zeros(0, np.float32)
        whole = np.memmap(
            tensor.file,
            dtype=READ[tensor.format],
            mode="r",
            offset=tensor.offset,
            shape=(tensor.numbers,),
        )
        part = np.asarray(whole[:: max(tensor.numbers // count, 1)][:count])
        if tensor.format == "BF16":
            return (part.astype(np.uint32) << 16).view(np.float32)
        return part.astype(np.float32)


def read_tensors_of(path: Path, values: int = 0, rate: float | None = None) -> StoredTensors:
    """All tensors of a file, or of the files of a folder; a file that is damaged is named, the
    others are read."""
    below = sorted(path.rglob("*")) if path.is_dir() else []
    files = (
        [file for file in below if file.suffix.lower() == ".safetensors"]
        if path.is_dir()
        else [path]
    )
    unread, tensors = list[tuple[Path, str]](), list[StoredTensor]()
    for file in files:
        try:
            tensors += read_header(file)
        except BadInput as error:
            if path.is_file():
                raise
            unread.append((file, error.message))
    if path.is_dir():
        unread += [
            (
                file,
                (
                    "a pickle runs code when it is opened: convert it to safetensors to have it"
                    " audited"
                ),
            )
            for file in below
            if file.suffix.lower() in PICKLES
        ]
    return StoredTensors(path, tensors, unread, values, rate)


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors that a safetensors file says it holds, checked against its length."""
    try:
        with open(open_regular(path, follow=True), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(MOST_HEADER, size - 8):
                raise BadInput(
                    f"{path} is no whole safetensors file: its header would take {length:,} of"
                    f" {size:,} bytes",
                    "copy it again",
                )
            header = json.loads(stream.read(length))
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", "expected a safetensors file"
        ) from None
    except (ValueError, RecursionError):
        raise BadInput(
            f"{path} is no safetensors file: its header is not JSON", "expected a safetensors file"
        ) from None
    if not isinstance(header, dict) or not header.keys() - {"__metadata__"}:
        raise BadInput(
            f"{path} names no tensor in its header: there is nothing to look at",
            "expected a safetensors file",
        )
    return [
        _tensor(path, name, facts, 8 + length, size)
        for name, facts in header.items()
        if name != "__metadata__"
    ]


def _tensor(path: Path, name: str, facts: Any, start: int, size: int) -> StoredTensor:
    try:
        kind, shape, (first, last) = (
            str(facts["dtype"]),
            tuple(map(int, facts["shape"])),
            facts["data_offsets"],
        )
        tensor = StoredTensor(name, kind, shape, path, start + int(first))
        sound = 0 <= first <= last <= size - start and tensor.numbers * BITS[kind] == 8 * (
            last - first
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise BadInput(
            f"{path}: the tensor '{name}' does not lie where the header says, or is of no format"
            " that safetensors has: the file is cut off or damaged",
            "copy it again",
        )
    return tensor


def json_of(path: Path) -> dict[str, Any]:
    """A small JSON object beside weights; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(read_regular(path, limit=MOST_HEADER))
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"{path} cannot be read", "is it JSON?") from None
    return value if isinstance(value, dict) else {}


def matching(tensors: Sequence[StoredTensor], *words: str) -> list[StoredTensor]:
    """Tensors whose name holds one of the words."""
    return [one for one in tensors if any(word in one.name.lower() for word in words)]


# --------------------------------------------------------------------------------------------------
# A pipeline or a single model in diffusers' format: its parts, their classes, configurations and
# stored tensors.


INDEX, CONFIG = "model_index.json", "config.json"
# parts; the others are frozen as a rule
TRAINED = ("", "transformer", "transformer_2", "unet", "prior", "decoder")
CONFIGS = (CONFIG, "scheduler_config.json", "tokenizer_config.json")


class ModelPart(NamedTuple):
    name: str  # vae, transformer; empty of a single model
    declared: str  # the class that the pipeline's index names
    own: str  # the class that its own configuration names
    config: dict[str, Any]
    tensors: StoredTensors


class ModelFolder(NamedTuple):
    path: Path
    pipeline: str  # the pipeline's class; empty of a single model
    parts: list[ModelPart]

    def part(self, *names: str) -> ModelPart | None:
        return next((one for one in self.parts if one.name in names), None)


def is_model_folder(folder: Path) -> bool:
    return (folder / INDEX).is_file() or (
        (folder / CONFIG).is_file() and bool(_class(json_of(folder / CONFIG)))
    )


def read_model_folder(folder: Path, values: int = 0, rate: float | None = None) -> ModelFolder:
    index = json_of(folder / INDEX)
    if not index:
        return ModelFolder(folder, "", [_part(folder, "", "", values, rate)])
    parts = [
        _part(folder / name, name, str(known[1]), values, rate)
        for name, known in index.items()
        if isinstance(known, list) and len(known) == 2 and known[1] and (folder / name).is_dir()
    ]
    return ModelFolder(folder, str(index.get("_class_name", "")), parts)


def _part(folder: Path, name: str, declared: str, values: int, rate: float | None) -> ModelPart:
    config = next((found for file in CONFIGS if (found := json_of(folder / file))), {})
    return ModelPart(name, declared, _class(config), config, read_tensors_of(folder, values, rate))


def _class(config: dict[str, Any]) -> str:
    known = config.get("architectures")
    return str(config.get("_class_name") or (known[0] if isinstance(known, list) and known else ""))


# --------------------------------------------------------------------------------------------------
# An autoencoder tried on the user's own pictures: how well they come back, and how far the latents
# deviate.
#
# B pictures, C channels, h w cells of the latents, S pixels on a side


PICTURES, SIDE = 32, 256


class CodecTrial(NamedTuple):
    codec: str
    psnr: list[float]  # dB of each picture, 8 bits
    names: list[str]
    deviation: float  # of the latents, over all channels
    channels: list[float]  # the same of each channel


def try_codec(data: str, codec: str, pictures: int = PICTURES, side: int = SIDE) -> CodecTrial:
    """Encode and decode some pictures, cut and resized to squares; pictures that cannot be opened
    are passed over."""
    import torch

    from fulcrum.networks.network_hash import to_unit

    built = FolderCodec.model_validate({"path": codec}).build(None)
    given = list(islice(_pictures(data, side), pictures))
    if not given:
        raise BadInput(
            f"{data} holds no picture of {side} pixels or more",
            "an autoencoder is tried on pictures that are large enough",
        )
    names = [name for name, _ in given]
    whole = torch.from_numpy(np.stack([picture for _, picture in given]))  # (B, 3, S, S)
    latents = built.encode(to_unit(whole))  # (B, C, h, w)
    back = built.decode(latents).clamp(-1, 1).add(1).mul(127.5)
    errors = (back - whole.float()).square().mean(dim=(1, 2, 3)).clamp(min=1e-6)
    psnr = (10 * torch.log10(255**2 / errors)).tolist()
    channels = latents.float().std(dim=(0, 2, 3)).tolist()
    return CodecTrial(codec, psnr, names, float(latents.float().std()), channels)


def _pictures(data: str, side: int) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    for name, content, _ in samples_of(data):
        # an enlarged picture is easy
        if (picture := square(content, side, enlarge=False)) is not None:
            yield name, picture
