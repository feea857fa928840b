"""The model card of an exported pipeline: how to draw with it, what it is, what it learned from, how good it is."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fulcrum.interop.placeless import last_name, placeless, without_places
from fulcrum.spec.errors import shown
from fulcrum.spec.run import RunSpec
from fulcrum.spec.words import in_brief

WORLD_PROMPT, ANY_PROMPT = "a large red circle at the top left.", "a prompt in the words of the training captions"
NEEDS = ("diffusers", "transformers", "ftfy")  # to load the folder and to read prompts
ADAPTER_NEEDS = (*NEEDS, "peft")
DECLARED = "T5GemmaEncoder"  # what PRXPipeline says its text encoder is, as the published ones have it
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
    """Python that draws the picture of `fulcrum sample` with the first seed; it needs nothing of ours."""
    run, size = facts.run, facts.run.data.size
    time = "1 - i / steps" if run.sample.shift == 1 else "shift * (steps - i) / (steps + (shift - 1) * (steps - i))"
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
        f'noise = load_file(f"{{folder}}/noise.safetensors")["{facts.seeds[0]}"]  # of seed {facts.seeds[0]}\n'
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
        "Description of the run": "The whole of it stands in `run.json`.\n\n"
        + _table(("part", "filled by"), [(name, _told(in_brief(part), facts.about)) for name, part in _fillers(facts.run)]),
    }
    library = "peft" if facts.base else "diffusers"
    head = [f"library_name: {library}", "pipeline_tag: text-to-image", f"license: {_licence_id(facts.licence)}"]
    front = "\n".join(["---", *head, f"tags: [prx, fulcrum{', lora' if facts.base else ''}]", "---"])
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"{front}\n\n# {_safe(_told(facts.about['phrase'], facts.about))}\n\n{body}\n"


def _draw(facts: CardFacts) -> str:
    size, stride = facts.run.data.size, facts.run.encode.codec.stride
    key = facts.about["key"]
    seeds = f"{facts.seeds[0]} to {facts.seeds[-1]}" if len(facts.seeds) > 1 else str(facts.seeds[0])
    lines = [
        f"Needs the packages torch, {', '.join(facts.needs)}; it was tried with diffusers 0.42.1 and transformers 5.22.2.",
        f"```python\n{call(facts)}```",
        f"This is the picture of `fulcrum sample {key[:8]} --scale 1`, typed where its folder `runs` lies, with the same "
        "prompt and seed, to 1/255.",
        "- `timesteps` is the grid that it draws on here; the scheduler's own grid is another, and so is its picture. You "
        "can ignore the diffusers warning about timesteps: `shift` is 1 in this folder, so times and sigmas agree.",
        "- You can ignore two more: that `accelerate` was not found (with it, loading takes less memory; the picture is "
        "the same), and that `LoraLoaderMixin` is deprecated (diffusers says so of a class of its own).",
        f"- `noise.safetensors` holds the noise of the seeds {seeds}, for {size} x {size} pixels. Without `latents`, "
        "`generator=torch.Generator().manual_seed(n)` draws other noise of the same kind.",
        f"- Sides are multiples of {stride * facts.run.model.patch} pixels; it was trained at {size}.",
        f"- A prompt has at most {facts.longest} tokens, the rest is cut; {ONE}.",
        *_at_loading(facts),
        *([f"- It belongs to {_safe(facts.base)}: beside any other weights it means nothing."] if facts.base else []),
        *(f"- {line}" for line in facts.cautions),
    ]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])


def _at_loading(facts: CardFacts) -> list[str]:
    """What diffusers warns of as it loads the folder, and why that is no fault. PRXPixelPipeline declares no class."""
    if facts.pipeline != "PRXPipeline" or facts.text_class == DECLARED:
        return []
    return [
        f"- When it is loaded, diffusers says that it expected a {DECLARED} as text_encoder and got a {facts.text_class}. "
        "That is as it should be: published PRX models have the one, this model was trained with the other, and the "
        "pipeline calls both alike. No weight is missing or made up."
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
        "denoiser": f"width {model.width}, depth {model.depth}, heads {model.heads}, patch {model.patch}",
        "output": f"{in_brief(run.flow.predict)}, noise of scale {run.flow.noise_scale:g}",
        "sampling": f"Euler, {run.sample.steps} steps, shift {run.sample.shift:g}, {in_brief(run.sample.guide)}",
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
        rows |= {name: facts.data[name] for name in ("count", "splits", "captions", "licence") if name in facts.data}
    more = "\n\nThe whole data card: `data_card.json`." if facts.data else ""
    return _table(("", ""), rows.items()) + more


def _levers(facts: CardFacts) -> str:
    rows = [(_told(lever, facts.about), says) for lever, says in facts.levers.items()]
    return _table(("lever", "what it changes"), rows) if rows else "None: the plain recipe."


def _metrics(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    if not metrics:
        return "Not measured: `fulcrum measure RUN` measures a run, and an export after it says what was found."
    rows = [
        (
            name,
            f"{one['value']:.4g} [{one['low']:.4g}, {one['high']:.4g}]",
            f"{one['card'].get('better', '')} is better",
            f"N = {one['card'].get('n', 0):,}",
        )
        for name, one in metrics.items()
    ]
    return _table(("metric", "value [95 %]", "", ""), rows) + "\n\nThe card of every number: `metrics.json`."


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
    """The parts of a run by where they stand, without the data's, whose paths are nobody's business."""
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
    return json.dumps(plain | ({"user_files": files} if "user_files" in about else {}), indent=1, sort_keys=True) + "\n"


def _told(text: str, about: Mapping[str, Any]) -> str:
    """Words about a run without folders of the machine: those that its description holds, whatever signs are in them."""
    return without_places(text, about["run"])


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_safe(cell) for cell in line) + " |" for line in lines)


def _safe(text: object) -> str:
    """One line that is only text: no column, tag, link or code begins in it."""
    return re.sub(r"([\\|<>`\[\]])", r"\\\1", shown(str(text).replace("\n", " ")))
