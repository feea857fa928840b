"""What the denoiser must know of a pretrained part, read from its config.json alone. No torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.sealed import read_json
from fulcrum.networks.pretrained.folder import CONFIG, absolute, config_of, locate, tokenizer_of
from fulcrum.spec.errors import BadInput, nearest

CODEC_PARTS, TEXT_PARTS, TEACHER_PARTS = ("vae",), ("text_encoder",), ("image_encoder",)
CODECS = ("AutoencoderKL", "AutoencoderKLFlux2", "AutoencoderDC", "AutoencoderTiny")
# pixels of the picture that a token covers by default: REPA reads 256 px as 16 x 14 px
COARSE = {14: 16}

# architecture in config.json -> (class that reads it, where its own sizes stand in the config)
TEXTS = {
    "T5GemmaEncoder": ("T5GemmaEncoder", "encoder"),
    "T5GemmaEncoderModel": ("T5GemmaEncoderModel", "encoder"),
    "T5GemmaModel": ("T5GemmaEncoderModel", "encoder"),
    "T5GemmaForConditionalGeneration": ("T5GemmaEncoderModel", "encoder"),
    "Qwen3VLTextModel": ("Qwen3VLTextModel", "text_config"),
    "Qwen3VLModel": ("Qwen3VLModel", "text_config"),
    "Qwen3VLForConditionalGeneration": ("Qwen3VLModel", "text_config"),
    "T5EncoderModel": ("T5EncoderModel", ""),
    "T5Model": ("T5EncoderModel", ""),
    "T5ForConditionalGeneration": ("T5EncoderModel", ""),
    "CLIPTextModel": ("CLIPTextModel", "text_config"),
    "CLIPTextModelWithProjection": ("CLIPTextModel", "text_config"),
    "CLIPModel": ("CLIPTextModel", "text_config"),
    "BertModel": ("BertModel", ""),
    "ModernBertModel": ("ModernBertModel", ""),
}
UNBOUNDED = 1_000_000  # tokenizers say "very large" when they have no limit
BOUNDED = ("CLIPTextModel", "BertModel", "ModernBertModel")  # text encoders whose positions end
TEACHERS = {
    "Dinov2Model": ("Dinov2Model", ""),
    "Dinov2WithRegistersModel": ("Dinov2WithRegistersModel", ""),
    "DINOv3ViTModel": ("DINOv3ViTModel", ""),
    "CLIPVisionModel": ("CLIPVisionModel", "vision_config"),
    "CLIPVisionModelWithProjection": ("CLIPVisionModel", "vision_config"),
    "CLIPModel": ("CLIPVisionModel", "vision_config"),
}


class CodecFacts(NamedTuple):
    network: str
    stride: int
    channels: int


class TextFacts(NamedTuple):
    network: str
    width: int
    longest: int | None  # tokens that its positions allow; None = no bound


class TeacherFacts(NamedTuple):
    network: str
    width: int
    patch: int  # pixels of a token in what the network reads
    prefix: int  # tokens before the patches: class and registers


def codec_facts(folder: Path) -> CodecFacts:
    """Stride and channels of the latents as the encoder gives them."""
    config = config_of(folder)
    network = config.get("_class_name")
    if network not in CODECS:
        raise BadInput(
            f"{folder / CONFIG} describes a {network or 'part of unknown class'}, not a codec",
            "codecs that can be read: " + ", ".join(CODECS),
        )
    levels = (
        "encoder_block_out_channels"
        if network in ("AutoencoderDC", "AutoencoderTiny")
        else "block_out_channels"
    )
    count = len(_need(config, levels, list, folder))
    return CodecFacts(network, 2 ** (count - 1), _need(config, "latent_channels", int, folder))


def layouts(facts: CodecFacts) -> tuple[tuple[int, int], ...]:
    """(stride, channels) that a denoiser may ask for; FLUX.2's latents also come two by two, as in
    its own denoiser."""
    own = (facts.stride, facts.channels)
    return (
        (own, (2 * facts.stride, 4 * facts.channels))
        if facts.network == "AutoencoderKLFlux2"
        else (own,)
    )


def text_facts(folder: Path) -> TextFacts:
    network, config = _architecture(folder, TEXTS, "text encoder")
    width = config.get("hidden_size", config.get("d_model"))
    if not isinstance(width, int):
        raise BadInput(
            f"{folder / CONFIG} names no hidden_size", "expected what save_pretrained writes"
        )
    bound = config.get("max_position_embeddings") if network in BOUNDED else None
    return TextFacts(network, width, bound)


def text_limit(folder: Path, most: int) -> int:
    """Tokens of a prompt that are read: `most`, or fewer where the network's positions or the
    tokenizer end before."""
    settings = tokenizer_of(folder) / "tokenizer_config.json"
    own = (
        read_json(settings, "expected what save_pretrained writes").get("model_max_length")
        if settings.is_file()
        else None
    )
    return shortest(most, text_facts(folder).longest, own if isinstance(own, int | float) else None)


def shortest(most: int, positions: int | None, tokenizer: float | None) -> int:
    """The least of what is asked for, what a network's positions allow and what its tokenizer
    says."""
    bounds = [most, positions, tokenizer if tokenizer and tokenizer < UNBOUNDED else None]
    return int(min(bound for bound in bounds if bound))


def teacher_facts(folder: Path) -> TeacherFacts:
    network, config = _architecture(folder, TEACHERS, "vision teacher")
    registers = config.get("num_register_tokens", 0) if network != "Dinov2Model" else 0
    return TeacherFacts(
        network,
        _need(config, "hidden_size", int, folder),
        _need(config, "patch_size", int, folder),
        1 + registers,
    )


def fitting_codec(
    folder: Path, stride: int | None, channels: int | None, network: str = ""
) -> dict[str, Any]:
    """Stride, channels and class of the folder's codec; refused when it is not what the run
    says."""
    facts = codec_facts(folder)
    if network and network != facts.network:
        raise BadInput(
            f"the run is made for {network}, but {folder} holds {facts.network}: another latent"
            " space",
            "give a folder of that class, or set the whole codec:"
            " encode.codec=pretrained_codec(path='...')",
        )
    for own_stride, own_channels in layouts(facts):
        if stride in (None, own_stride) and channels in (None, own_channels):
            return {"stride": own_stride, "channels": own_channels, "network": facts.network}
    asked = " and ".join(
        [*([f"stride {stride}"] if stride else []), *([f"{channels} channels"] if channels else [])]
    )
    fits = " or ".join(f"stride {s} and {c} channels" for s, c in layouts(facts))
    raise BadInput(
        f"the run has a codec of {asked}, but {folder} gives {fits}",
        "leave stride and channels out and they are read from the folder",
    )


def fitting_text(folder: Path, width: int | None) -> dict[str, Any]:
    facts = text_facts(folder)
    if width not in (None, facts.width):
        raise BadInput(
            f"the run has a text encoder of width {width}, but {folder} holds {facts.network} of"
            f" width {facts.width}",
            "leave the width out and it is read from the folder",
        )
    return {"width": facts.width}


def fitting_teacher(folder: Path, width: int | None, patch: int | None) -> dict[str, Any]:
    facts = teacher_facts(folder)
    if width not in (None, facts.width):
        raise BadInput(
            f"the run has a teacher of width {width}, but {folder} holds {facts.network} of width"
            f" {facts.width}",
            "leave the width out and it is read from the folder",
        )
    return {"width": facts.width, "patch": patch or COARSE.get(facts.patch, facts.patch)}


def completed(
    given: Any,
    parts: tuple[str, ...],
    sizes: tuple[str, ...],
    fitting: Callable[..., dict[str, Any]],
) -> Any:
    """A record's settings with the sizes that were left out, read from its folder; given ones are
    checked against it.

    A run whose folder has been moved away can still be read; what it needs is asked for when it is
    built.
    """
    if not isinstance(given, dict) or not isinstance(given.get("path", ""), str):
        return given  # pydantic says what is wrong with it
    path, known = given.get("path", ""), {size: given.get(size) or None for size in sizes}
    whole = all(value for size, value in known.items() if size != "network")
    if not path:
        if not whole:
            raise ValueError("give the folder it is read from: path='...'")
        return given
    try:
        folder = locate(path, parts, online=not whole)
    except BadInput:
        if whole:
            return given
        raise
    if not all(
        value is None or isinstance(value, str if size == "network" else int)
        for size, value in known.items()
    ):
        return given
    return {
        **given,
        "path": absolute(path),
        **fitting(
            folder,
            **{size: value or ("" if size == "network" else None) for size, value in known.items()},
        ),
    }


def _architecture(
    folder: Path, known: dict[str, tuple[str, str]], what: str
) -> tuple[str, dict[str, Any]]:
    config = config_of(folder)
    named = (config.get("architectures") or [config.get("_class_name") or "nothing"])[0]
    if named not in known:
        raise BadInput(
            f"{folder / CONFIG} describes {named}, not a {what} that can be read",
            nearest(str(named), known),
        )
    network, inner = known[named]
    return network, config.get(inner) or config


def _need(config: dict[str, Any], name: str, kind: type, folder: Path) -> Any:
    value = config.get(name)
    if not isinstance(value, kind):
        raise BadInput(
            f"{folder / CONFIG} has no proper {name}: found {value!r}",
            "expected what save_pretrained writes",
        )
    return value
