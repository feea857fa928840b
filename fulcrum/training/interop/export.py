"""Export a run as a pipeline of diffusers: denoiser, codec, text encoder, adapter, model card."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from fulcrum.data.world.scene import TOKEN
from fulcrum.files.atomic import atomic_path, write_atomic
from fulcrum.files.remote import is_remote, without_secrets
from fulcrum.networks.codec import IdentityCodec, KLCodec
from fulcrum.networks.pretrained.codec import PretrainedCodec
from fulcrum.networks.pretrained.folder import _quiet
from fulcrum.networks.pretrained.text import PretrainedText
from fulcrum.networks.protocols import Codec, TextEncoder
from fulcrum.networks.text import (
    EPS,
    HIDDEN,
    LONGEST,
    PAD,
    START,
    THETA,
    UNKNOWN,
    Tokenizer,
    WorldText,
)
from fulcrum.spec.errors import BadInput, RunFailed, install_extra, shown
from fulcrum.spec.run import RunSpec
from fulcrum.spec.words import in_brief
from fulcrum.training.flow import noise as keyed_noise
from fulcrum.training.interop.diffusers import CONFIG, MADE_FOR, WEIGHTS, export, pipeline_of
from fulcrum.training.model.adapter import BESIDE, is_beside
from fulcrum.training.model.transformer import Backbone

# --------------------------------------------------------------------------------------------------
# Sends an exported folder to a hub of models, with the user's own token: huggingface_hub finds it,
# nothing here looks.


NAME = re.compile(r"hub:(?P<repo>\w[\w.-]*/\w[\w.-]*)")


def hub_name(target: str) -> str:
    """ORG/NAME of hub:ORG/NAME; refused before anything is written."""
    named = NAME.fullmatch(target)
    if named is None:
        raise BadInput(
            f"--push wants hub:ORG/NAME, found '{target}'", "such as --push hub:me/red-circles"
        )
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise BadInput(
            "--push needs the package huggingface_hub", install_extra("diffusers")
        ) from None
    return named["repo"]


def push(folder: Path, repo: str, message: str, private: bool = True) -> str:
    """Upload a folder as a new model; one that has a pipeline already is left alone. Returns its
    address."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repo, repo_type="model", private=private, exist_ok=True)
        taken = api.file_exists(repo, "model_index.json")
        if not taken:
            return str(
                api.upload_folder(repo_id=repo, folder_path=str(folder), commit_message=message)
            )
    except Exception as error:  # its library raises a dozen kinds, down to those of the network
        raise RunFailed(
            f"the hub did not take {repo}: {type(error).__name__}: {str(error)[:300]}",
            f"the folder {folder} is whole: log in with 'hf auth login' and upload it, or export"
            " again with --push",
        ) from error
    raise BadInput(
        f"{repo} holds a pipeline already",
        f"nothing was sent; choose another name. The folder {folder} is whole",
    )


# --------------------------------------------------------------------------------------------------
# What is published of a run, without where files lay: of a path its last name, of an address no
# secret.


PUBLIC = ("hub:", "pip:")  # ids that mean the same on any machine
_SEPARATOR = re.compile(r"[/\\]")
_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>(),]*")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_BARE = re.compile(r"[^\s,()=\"'][^\s,()=]*")  # a quote may stand inside of a name
_CALL = re.compile(r"\w+\(.*\)", re.DOTALL)
SET = " --set "


def last_name(text: str) -> str:
    """Of a path the last name, of an address all but its secrets; anything else as it is."""
    if is_remote(text):
        return without_secrets(text)
    if text.startswith(PUBLIC):
        return text
    return _SEPARATOR.split(text.rstrip("/\\"))[-1]


def placeless(value: Any) -> Any:
    """Plain data of a run, in which no word holds a separator unless it is part of a path."""
    if isinstance(value, str):
        return last_name(value)
    if isinstance(value, list | tuple):
        return [placeless(item) for item in value]
    return (
        {name: placeless(item) for name, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def placeless_card(value: Any) -> Any:
    """The same of a card, which has sentences too: in these, what begins as a path or is an
    address."""
    if (
        isinstance(value, str)
        and any(sign.isspace() for sign in value)
        and not value.startswith(("/", "~", "."))
    ):
        text = _ADDRESS.sub(lambda address: without_secrets(address.group()), value)
        return re.sub(
            r"(?<![\w.:/])[/~][^\s,;()]*/[^\s,;()]*", lambda path: last_name(path.group()), text
        )
    if isinstance(value, list):
        return [placeless_card(item) for item in value]
    return (
        {name: placeless_card(item) for name, item in value.items()}
        if isinstance(value, dict)
        else placeless(value)
    )


def without_places(text: str, run: Any) -> str:
    """A phrase, or a part of a run in words: every path that the run's description holds, then
    whatever is written like one."""
    for path in sorted(set(_places(run)), key=len, reverse=True):
        for spelling in (path, repr(path)[1:-1]):
            text = text.replace(spelling, last_name(path))
    phrase, *settings = text.split(SET)
    return SET.join([_in_words(phrase), *map(_setting, settings)])


def _places(value: Any) -> Iterator[str]:
    if isinstance(value, str) and last_name(value) not in ("", value):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _places(item)


def _setting(text: str) -> str:
    slot, equals, value = text.partition("=")
    return slot + equals + (_in_words(value) if _CALL.fullmatch(value) else last_name(value))


def _in_words(text: str) -> str:
    """What stands in quotes is one word, whatever signs are in it."""
    ends, parts = 0, []
    for quoted in _QUOTED.finditer(text):
        parts += [_bare(text[ends : quoted.start()]), _requoted(quoted.group())]
        ends = quoted.end()
    return "".join([*parts, _bare(text[ends:])])


def _requoted(text: str) -> str:
    return text[0] + last_name(text[1:-1]) + text[-1]


def _bare(text: str) -> str:
    text = _ADDRESS.sub(lambda address: without_secrets(address.group()), text)
    return _BARE.sub(lambda word: last_name(word.group()), text)


# --------------------------------------------------------------------------------------------------
# The model card of an exported pipeline: how to draw with it, what it is, what it learned from, how
# good it is.


WORLD_PROMPT, ANY_PROMPT = (
    "a large red circle at the top left.",
    "a prompt in the words of the training captions",
)
NEEDS = ("diffusers", "transformers", "ftfy")  # to load the folder and to read prompts
ADAPTER_NEEDS = (*NEEDS, "peft")
# what PRXPipeline says its text encoder is, as the published ones have it
DECLARED = "T5GemmaEncoder"
ONE = "one picture at a time: with guidance, PRX pipelines of diffusers 0.42.1 fail above one"


class CardFacts(NamedTuple):
    """What a card is written from."""

    run: RunSpec
    about: Mapping[str, Any]  # the run's: key, seed, phrase, science, reads
    result: Mapping[str, Any]  # images, weights_sha256
    pipeline: str
    seeds: Sequence[int]  # whose noise lies in the folder
    longest: int  # tokens of a prompt
    text_class: str  # what transformers calls its text encoder
    weights: str  # which ones and how they are kept, in words
    levers: Mapping[str, str] = {}  # lever -> what its card says
    metrics: Mapping[str, Mapping[str, Any]] = {}  # name -> value, low, high, card
    data: Mapping[str, Any] = {}  # the data card, of pictures that were imported
    licences: Mapping[str, str] = {}  # part -> licence
    licence: str = ""  # of the weights
    cautions: Sequence[str] = ()
    base: str = ""  # of an adapter: what it is put beside, in words; "" is a whole pipeline

    base_line: str = ""  # of an adapter: Python that names its base

    @property
    def needs(self) -> Sequence[str]:
        return ADAPTER_NEEDS if self.base else NEEDS


def prompt_of(run: RunSpec) -> str:
    """What the card draws."""
    return WORLD_PROMPT if run.data.source.is_world else ANY_PROMPT


def call(facts: CardFacts) -> str:
    """Python that draws the picture of `fulcrum sample` with the first seed; it needs nothing of
    ours."""
    run, size = facts.run, facts.run.data.size
    time = (
        "1 - i / steps"
        if run.sample.shift == 1
        else "shift * (steps - i) / (steps + (shift - 1) * (steps - i))"
    )
    shift = "" if run.sample.shift == 1 else f"shift = {run.sample.shift!r}\n"
    reading = (
        f"    skip_text_cleaning=True,\n    tokenizer_max_length={facts.longest},\n"
        if facts.pipeline == "PRXPipeline"
        else ""
    )
    loaded = (
        f"{facts.base_line}\n"
        "pipeline = DiffusionPipeline.from_pretrained(base)\n"
        "pipeline.transformer = PeftModel.from_pretrained(pipeline.transformer, folder)\n"
        if facts.base
        else "pipeline = DiffusionPipeline.from_pretrained(folder)\n"
    )
    return (
        "from diffusers import DiffusionPipeline\n"
        + ("from peft import PeftModel\n" if facts.base else "")
        + "from safetensors.torch import load_file\n\n"
        'folder = "."  # where this card lies\n'
        f"{loaded}"
        f'noise = load_file(f"{{folder}}/noise.safetensors")["{facts.seeds[0]}"]  # of seed'
        f" {facts.seeds[0]}\n"
        f"steps = {run.sample.steps}\n{shift}"
        "image = pipeline(\n"
        f"    {json.dumps(prompt_of(run))},\n"
        f"    height={size},\n    width={size},\n"
        f"    timesteps=[1000 * ({time}) for i in range(steps)],\n"
        f"    guidance_scale={getattr(run.sample.guide, 'scale', 1.0)!r},\n"
        "    latents=noise,\n"
        "    use_resolution_binning=False,\n"
        f"{reading}"
        ").images[0]\n"
        'image.save("picture.png")\n'
    )


def model_card(facts: CardFacts) -> str:
    """The whole README.md."""
    sections = {
        "Draw": _draw(facts),
        "What it is": _identity(facts),
        "Levers": _levers(facts),
        "Data": _data(facts),
        "Metrics": _metrics(facts.metrics),
        "Licence": _licence(facts),
        "Description of the run": (
            "The whole of it stands in `run.json`.\n\n"
            + _table(
                ("part", "filled by"),
                [(name, _told(in_brief(part), facts.about)) for name, part in _fillers(facts.run)],
            )
        ),
    }
    library = "peft" if facts.base else "diffusers"
    head = [
        f"library_name: {library}",
        "pipeline_tag: text-to-image",
        f"license: {_licence_id(facts.licence)}",
    ]
    front = "\n".join(
        ["---", *head, f"tags: [prx, fulcrum{', lora' if facts.base else ''}]", "---"]
    )
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"{front}\n\n# {_safe(_told(facts.about['phrase'], facts.about))}\n\n{body}\n"


def _draw(facts: CardFacts) -> str:
    size, stride = facts.run.data.size, facts.run.encode.codec.stride
    key = facts.about["key"]
    seeds = (
        f"{facts.seeds[0]} to {facts.seeds[-1]}" if len(facts.seeds) > 1 else str(facts.seeds[0])
    )
    lines = [
        (
            f"Needs the packages torch, {', '.join(facts.needs)}; it was tried with diffusers"
            " 0.42.1 and transformers 5.22.2."
        ),
        f"```python\n{call(facts)}```",
        (
            f"This is the picture of `fulcrum sample {key[:8]} --scale 1`, typed where its folder"
            " `runs` lies, with the same prompt and seed, to 1/255."
        ),
        (
            "- `timesteps` is the grid that it draws on here; the scheduler's own grid is another,"
            " and so is its picture. You can ignore the diffusers warning about timesteps: `shift`"
            " is 1 in this folder, so times and sigmas agree."
        ),
        (
            "- You can ignore two more: that `accelerate` was not found (with it, loading takes"
            " less memory; the picture is the same), and that `LoraLoaderMixin` is deprecated"
            " (diffusers says so of a class of its own)."
        ),
        (
            f"- `noise.safetensors` holds the noise of the seeds {seeds}, for {size} x {size}"
            " pixels. Without `latents`, `generator=torch.Generator().manual_seed(n)` draws other"
            " noise of the same kind."
        ),
        (
            f"- Sides are multiples of {stride * facts.run.model.patch} pixels; it was trained at"
            f" {size}."
        ),
        f"- A prompt has at most {facts.longest} tokens, the rest is cut; {ONE}.",
        *_at_loading(facts),
        *(
            [f"- It belongs to {_safe(facts.base)}: beside any other weights it means nothing."]
            if facts.base
            else []
        ),
        *(f"- {line}" for line in facts.cautions),
    ]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])


def _at_loading(facts: CardFacts) -> list[str]:
    """What diffusers warns of as it loads the folder, and why that is no fault. PRXPixelPipeline
    declares no class."""
    if facts.pipeline != "PRXPipeline" or facts.text_class == DECLARED:
        return []
    return [
        f"- When it is loaded, diffusers says that it expected a {DECLARED} as text_encoder and got"
        f" a {facts.text_class}. That is as it should be: published PRX models have the one, this"
        " model was trained with the other, and the pipeline calls both alike. No weight is"
        " missing or made up."
    ]


def _identity(facts: CardFacts) -> str:
    model, run = facts.run.model, facts.run
    rows = {
        "phrase": _told(facts.about["phrase"], facts.about),
        "key": facts.about["key"],
        "seed": facts.about["seed"],
        "version of the science": facts.about.get("science", 1),
        "pipeline": facts.pipeline,
        "weights": facts.weights,
        "hash of the run's weights": facts.result["weights_sha256"],
        "images seen": f"{facts.result['images']:,}, in batches of {run.budget.batch}",
        "denoiser": (
            f"width {model.width}, depth {model.depth}, heads {model.heads}, patch {model.patch}"
        ),
        "output": f"{in_brief(run.flow.predict)}, noise of scale {run.flow.noise_scale:g}",
        "sampling": (
            f"Euler, {run.sample.steps} steps, shift {run.sample.shift:g},"
            f" {in_brief(run.sample.guide)}"
        ),
    }
    return _table(("", ""), rows.items())


def _data(facts: CardFacts) -> str:
    reads = facts.about.get("reads", {})
    rows = {
        "source": _told(str(facts.run.data.source), facts.about),
        "captions": _told(str(facts.run.data.caption), facts.about),
        "size": f"{facts.run.data.size} pixels",
        **{f"read: {name}": value for name, value in reads.items()},
    }
    if facts.data:
        rows |= {
            name: facts.data[name]
            for name in ("count", "splits", "captions", "licence")
            if name in facts.data
        }
    more = "\n\nThe whole data card: `data_card.json`." if facts.data else ""
    return _table(("", ""), rows.items()) + more


def _levers(facts: CardFacts) -> str:
    rows = [(_told(lever, facts.about), says) for lever, says in facts.levers.items()]
    return _table(("lever", "what it changes"), rows) if rows else "None: the plain recipe."


def _metrics(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    if not metrics:
        return (
            "Not measured: `fulcrum measure RUN` measures a run, and an export after it says what"
            " was found."
        )
    rows = [
        (
            name,
            f"{one['value']:.4g} [{one['low']:.4g}, {one['high']:.4g}]",
            f"{one['card'].get('better', '')} is better",
            f"N = {one['card'].get('n', 0):,}",
        )
        for name, one in metrics.items()
    ]
    return (
        _table(("metric", "value [95 %]", "", ""), rows)
        + "\n\nThe card of every number: `metrics.json`."
    )


def _licence(facts: CardFacts) -> str:
    own = facts.licence or "not stated: whoever trained it decides"
    rows = {"the denoiser's weights": own, **facts.licences}
    if "licence" in facts.data:
        rows["the pictures"] = facts.data["licence"]
    return _table(("part", "licence"), rows.items())


def _licence_id(licence: str) -> str:
    """As the hub's index takes it; anything else stands in the text."""
    return licence.lower() if re.fullmatch(r"[A-Za-z0-9.+-]+", licence) else "other"


def _fillers(run: RunSpec) -> list[tuple[str, Any]]:
    """The parts of a run by where they stand, without the data's, whose paths are nobody's
    business."""
    parts: dict[str, Any] = {
        "flow.time": run.flow.time,
        "flow.predict": run.flow.predict,
        "flow.weight": run.flow.weight,
        "model.route": run.model.route,
        "model.condition": run.model.condition,
        **({"model.learned": run.model.learned} if run.model.learned.partial else {}),
        **{f"terms.{term.name}": term for term in run.terms},
        "optim.rule": run.optim.rule,
        "average": run.average,
        "sample.guide": run.sample.guide,
    }
    return list(parts.items())


def description(about: Mapping[str, Any]) -> str:
    """run.json: what the run is, without where files lay on the machine that trained it."""
    files = {last_name(path): digest for path, digest in about.get("user_files", {}).items()}
    plain = {**placeless(dict(about)), "phrase": _told(about["phrase"], about)}
    return (
        json.dumps(
            plain | ({"user_files": files} if "user_files" in about else {}),
            indent=1,
            sort_keys=True,
        )
        + "\n"
    )


def _told(text: str, about: Mapping[str, Any]) -> str:
    """Words about a run without folders of the machine: those that its description holds, whatever
    signs are in them."""
    return without_places(text, about["run"])


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_safe(cell) for cell in line) + " |" for line in lines)


def _safe(text: object) -> str:
    """One line that is only text: no column, tag, link or code begins in it."""
    return re.sub(r"([\\|<>`\[\]])", r"\\\1", shown(str(text).replace("\n", " ")))


# --------------------------------------------------------------------------------------------------
# Our KL codec as a folder of diffusers' AutoencoderKL. Graph and names are the same: it is a copy.


def export_codec(codec: KLCodec, folder: Path) -> Path:
    """Write config.json and the weights; the latents of what is written need no scale and no
    shift."""
    codec = codec.folded()
    config = {
        "_class_name": "AutoencoderKL",
        "_diffusers_version": MADE_FOR,
        **codec.diffusers_config(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().cpu().contiguous() for name, value in codec.state_dict().items()
    }
    with atomic_path(folder / WEIGHTS) as aside:
        save_file(weights, aside, metadata={"format": "pt"})
    write_atomic(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")
    return folder


# --------------------------------------------------------------------------------------------------
# The world's text encoder as a folder of transformers' ModernBertModel with its tokenizer: the
# names are the same.


TRANSFORMERS_VERSION = "5.22.2"  # the transformers version whose config this is
SPECIALS = {PAD: "[PAD]", UNKNOWN: "[UNK]", START: "[START]", HIDDEN: "[MASK]"}


def export_text(text: WorldText, folder: Path, tokenizer: Path | None = None) -> Path:
    """Write config, weights and tokenizer as save_pretrained would; needs no transformers.
    `tokenizer`: its own folder."""
    beside = tokenizer or folder
    for place in (folder, beside):
        place.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in text.state_dict().items()}
    with atomic_path(folder / "model.safetensors") as aside:
        save_file(weights, aside, metadata={"format": "pt"})
    for path, content in {
        folder / "config.json": _config(text),
        beside / "tokenizer.json": _tokenizer(text.tokenizer),
        beside / "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": LONGEST,
            "padding_side": "right",
            "pad_token": SPECIALS[PAD],
            "unk_token": SPECIALS[UNKNOWN],
            "bos_token": SPECIALS[START],
            "mask_token": SPECIALS[HIDDEN],
            "split_special_tokens": True,  # a prompt that spells "[PAD]" means the word
        },
    }.items():
        write_atomic(path, json.dumps(content, indent=2) + "\n")
    return folder


def _config(text: WorldText) -> dict[str, Any]:
    depth = len(text.layers)
    return {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "transformers_version": TRANSFORMERS_VERSION,
        "dtype": str(torch.float32).removeprefix("torch."),
        "vocab_size": len(text.tokenizer),
        "hidden_size": text.width,
        "intermediate_size": text.config["hidden"],
        "num_hidden_layers": depth,
        "num_attention_heads": text.heads,
        "hidden_activation": "gelu",
        "norm_eps": EPS,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": LONGEST,
        "layer_types": ["full_attention"] * depth,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": THETA}
            for kind in ("full_attention", "sliding_attention")
        },
        "global_attn_every_n_layers": 1,  # transformers 4 asks by these two
        "global_rope_theta": THETA,
        "pad_token_id": PAD,
        "bos_token_id": START,
        "cls_token_id": START,
        "eos_token_id": None,
        "sep_token_id": None,
    }


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """A word level tokenizer of the tokenizers library: lower case, our split, one start before the
    words."""
    special = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    start = {"SpecialToken": {"id": SPECIALS[START], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": name, **special} for number, name in SPECIALS.items()
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": TOKEN.pattern},
            "behavior": "Removed",
            "invert": True,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, first],
            "pair": [start, first, second],
            "special_tokens": {
                SPECIALS[START]: {
                    "id": SPECIALS[START],
                    "ids": [START],
                    "tokens": [SPECIALS[START]],
                },
            },
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {**{name: number for number, name in SPECIALS.items()}, **tokenizer.index},
            "unk_token": SPECIALS[UNKNOWN],
        },
    }


# --------------------------------------------------------------------------------------------------
# What learned beside a run's denoiser, as the folder of a LoRA adapter that peft puts beside the
# same layers of diffusers.
#
# peft reads adapter_config.json and the tensors; loaders of diffusers, in classes that have them,
# take the tensors with their prefix and find the config in the file's metadata.


ADAPTER_CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model"  # of every name in a file of peft's
IN_FILE = "lora_adapter_metadata"  # where diffusers looks for the config
PARTS = {"down": "lora_A", "up": "lora_B"}


def require_adapter(run: RunSpec) -> None:
    """Refuse a run whose pictures an adapter alone would not change into what they are."""
    if run.model.learned.kind != "low_rank":
        raise BadInput(
            "this run has no adapter: it was trained without lora",
            "leave --adapter out to export it whole",
        )
    if run.encode.codec.trained:
        raise BadInput(
            "the codec of this run was trained too, and no adapter holds it",
            "leave --adapter out: the whole is exported",
        )


def base_of(run: RunSpec) -> str:
    """What the adapter stands beside, in words."""
    start: Any = run.start
    if start.kind == "trunk":
        return (
            f"the run {start.run} (fulcrum export {start.run[:8]} base), whose weights are"
            f" {start.weights_sha256[:16]}"
        )
    return (
        f"the pipeline {Path(start.path).name}"
        if start.kind == "diffusers"
        else f"the start '{start.kind}'"
    )


def base_line(run: RunSpec) -> str:
    """Python that names the pipeline to put it beside: as it was called where it was trained, or to
    be filled in."""
    start: Any = run.start
    if start.kind == "trunk":
        return (
            f'base = "FOLDER"  # change this: the folder that `fulcrum export {start.run[:8]}'
            " FOLDER` writes"
        )
    path = getattr(start, "path", "")
    name = path.removeprefix("hub:") if path.startswith("hub:") else Path(path).name or "FOLDER"
    text = json.dumps(name).replace("`", "\\u0060")  # a name cannot end the card's block of code
    what = "what it was trained beside"
    return f"base = {text}  # " + (
        what if path.startswith("hub:") else f"change this to where the pipeline lies: {what}"
    )


def export_adapter(weights: Mapping[str, Tensor], run: RunSpec, folder: Path) -> None:
    """Write the config and the tensors, from weights as a run keeps them: not merged."""
    learned: Any = run.model.learned
    layers = [
        name.removesuffix(f"{BESIDE}down") for name in weights if name.endswith(f"{BESIDE}down")
    ]
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": learned.rank,
        "lora_alpha": learned.alpha or learned.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        # whole names: peft would take a part for every layer that ends with it
        "target_modules": sorted(layers),
    }
    tensors = {}
    for name, value in weights.items():
        layer, _, part = name.partition(BESIDE)
        if is_beside(name) and part in PARTS:
            tensors[f"{PREFIX}.{layer}.{PARTS[part]}.weight"] = (
                value.detach().float().cpu().contiguous()
            )
    told = {
        f"{PREFIX}.{name}": config[name]
        for name in ("r", "lora_alpha", "lora_dropout", "bias", "target_modules")
    }
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / TENSORS) as aside:
        save_file(
            tensors, aside, metadata={"format": "pt", IN_FILE: json.dumps(told, sort_keys=True)}
        )
    write_atomic(folder / ADAPTER_CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


# --------------------------------------------------------------------------------------------------
# A run as the folder of a whole pipeline of diffusers: denoiser, scheduler, text encoder,
# tokenizer, codec, noises.
#
# C channels, h, w latent rows and columns


INDEX, NOISE = "model_index.json", "noise.safetensors"
TRAIN_STEPS = 1000  # what diffusers calls t = 1
WORLD_CLASS = "ModernBertModel"  # the embedded text encoder, as it leaves
FAST = "PreTrainedTokenizerFast"  # also the name that transformers 4 has for TokenizersBackend
# of a config: where it was read from
PLACES = ("_name_or_path", "name_or_path", "is_local", "local_files_only")
MOST_NOISE = 64_000_000  # bytes of noises, at most; that of one seed at least

Loaded = tuple[str, str]  # the library and the class that read a part


class PipelineParts(NamedTuple):
    """What a run draws with."""

    run: RunSpec
    backbone: Backbone
    codec: Codec
    text: TextEncoder

    @property
    def longest(self) -> int:
        """Tokens of a prompt, at most; what is longer is cut."""
        return self.text.longest if isinstance(self.text, PretrainedText) else LONGEST

    @property
    def text_class(self) -> str:
        """What transformers calls the text encoder."""
        return (
            type(self.text.network).__name__
            if isinstance(self.text, PretrainedText)
            else WORLD_CLASS
        )


def export_pipeline(
    parts: PipelineParts, folder: Path, seeds: int = 1, dtype: torch.dtype | None = None
) -> list[int]:
    """Fill an empty folder; `dtype` is that of the denoiser's weights. Returns the seeds whose
    noise was written."""
    run = parts.run
    pixels = pipeline_of(run) == "PRXPixelPipeline"
    index: dict[str, Any] = {
        "_class_name": pipeline_of(run),
        "_diffusers_version": MADE_FOR,
        "default_sample_size": run.data.size,
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler"),
        "transformer": ("diffusers", "PRXTransformer2DModel"),
    }
    export(parts.backbone, folder / "transformer", dtype)
    index["text_encoder"], index["tokenizer"] = (
        ("transformers", parts.text_class),
        _text(parts.text, folder),
    )
    if pixels:
        index |= {"noise_scale": run.flow.noise_scale, "prompt_max_tokens": parts.longest}
    else:
        index["vae"] = _codec(parts.codec, folder / "vae")
    (folder / "scheduler").mkdir()
    # The times of a call are shifted already: a shift here would be a second one
    # (docs/decisions/0043).
    scheduler = {"num_train_timesteps": TRAIN_STEPS, "shift": 1.0}
    head = {"_class_name": index["scheduler"][1], "_diffusers_version": MADE_FOR}
    write_atomic(folder / "scheduler" / "scheduler_config.json", _json(head | scheduler))
    write_atomic(folder / INDEX, _json(index))
    return export_noises(run, folder / NOISE, seeds)


def _text(text: TextEncoder, folder: Path) -> Loaded:
    """Encoder and tokenizer, in folders of their own; returns what reads the tokenizer."""
    if isinstance(text, WorldText):
        export_text(text, folder / "text_encoder", folder / "tokenizer")
        return "transformers", FAST
    if isinstance(text, PretrainedText):
        network: Any = text.network
        with _quiet("transformers"):
            network.save_pretrained(folder / "text_encoder")
            if text.name == "T5GemmaEncoder":
                _whole_config(network.config, folder / "text_encoder")
            # with the padding token that it got when it was loaded
            text.tokenizer.save_pretrained(folder / "tokenizer")
        _mend(folder / "text_encoder" / "config.json")
        _mend(folder / "tokenizer" / "tokenizer_config.json")
        reads = type(text.tokenizer).__name__
        return "transformers", FAST if reads == "TokenizersBackend" else reads
    raise BadInput(
        f"the text encoder {type(text).__name__} has no class in transformers",
        "train with an embedded or a pretrained one, or draw with fulcrum sample",
    )


def _whole_config(encoder: Any, folder: Path) -> None:
    """diffusers reads the encoder half of T5Gemma through the description of the whole, as
    published folders have it."""
    from transformers import T5GemmaConfig

    whole = T5GemmaConfig(
        encoder=encoder.to_dict(), decoder=encoder.to_dict(), vocab_size=encoder.vocab_size
    )
    whole.architectures = ["T5GemmaEncoder"]
    whole.save_pretrained(folder)


def _codec(codec: Codec, folder: Path) -> Loaded:
    if isinstance(codec, KLCodec):
        export_codec(codec, folder)
        return "diffusers", "AutoencoderKL"
    if (
        isinstance(codec, PretrainedCodec)
        and getattr(codec.network, "config", {}).get("latents_mean") is None
    ):
        network: Any = codec.network
        with _quiet("diffusers"):
            network.save_pretrained(folder)
        _mend(folder / "config.json")
        return "diffusers", codec.name
    what = (
        "no codec"
        if isinstance(codec, IdentityCodec)
        else f"the codec {getattr(codec, 'name', type(codec).__name__)}"
    )
    raise BadInput(
        f"PRXPipeline cannot make pictures as this run does, with {what}",
        "it divides latents by scaling_factor and adds shift_factor; draw with fulcrum sample",
    )


def _mend(path: Path) -> None:
    """A config without where the part lay on this machine. PRXPipeline adds whatever stands at
    shift_factor, and nothing at all is no number."""
    config = _placeless(json.loads(path.read_text(encoding="utf-8")))
    if config.get("shift_factor", 0.0) is None:
        config["shift_factor"] = 0.0
    write_atomic(path, _json(config))


def _placeless(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _placeless(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in PLACES
    }


def noise_of(run: RunSpec, seed: int) -> torch.Tensor:
    """(1, C, h, w): what the first picture of a seed begins from, at the run's own size."""
    side = run.data.size // run.encode.codec.stride
    return (
        keyed_noise.normal(seed, "sample", np.arange(1), (run.encode.codec.channels, side, side))
        * run.flow.noise_scale
    )


def export_noises(run: RunSpec, path: Path, seeds: int) -> list[int]:
    bytes_each = noise_of(run, 0).nbytes
    chosen = list(range(min(seeds, max(1, MOST_NOISE // bytes_each))))
    with atomic_path(path) as aside:
        save_file({str(seed): noise_of(run, seed).contiguous() for seed in chosen}, aside)
    return chosen


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
