"""docs/recipes: one page for each recipe, with sizes, parameters, budget and arithmetic computed
from its description."""

import inspect
import re
from collections.abc import Sequence
from typing import Any

from fulcrum.levers.recipes import MACHINES
from fulcrum.spec.flops import amount, parameters
from fulcrum.spec.memory import step_memory
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.record import Filler, Record
from fulcrum.spec.run import RunSpec
from fulcrum.spec.speed import NODE, hours_in_words, money, read_machine
from fulcrum.training.cost_record import count_training
from fulcrum.training.estimate import estimate, pass_words, text_tokens

INDEX = """# All recipes

Written by `make docs` from the recipes' own files; a test keeps it current. A recipe is a function that returns a run;
a lever changes one thing of it: `fulcrum train "pocket + muon"`. Your own comes from a file: `--with FILE`
(`docs/write-a-lever.md`). What the small ones draw is in `docs/pictures.md`.

| recipe | pixels | tokens | parameters | batch | images | steps | FLOPs of training |
|---|---|---|---|---|---|---|---|
"""  # noqa: E501


def recipe_pages(catalogue: Catalogue) -> dict[str, str]:
    """File name -> text of every page."""
    runs = {name: make() for name, make in catalogue.recipes.items()}
    pages = {f"{name}.md": _page(name, run, catalogue.recipes[name]) for name, run in runs.items()}
    rows = [
        f"| [{name}]({name}.md) | {' | '.join(_sizes(run).values())} |"
        for name, run in runs.items()
    ]
    return pages | {"README.md": INDEX + "\n".join(rows) + "\n"}


def _sizes(run: RunSpec) -> dict[str, str]:
    images, batch = run.budget.images, run.budget.batch
    return {
        "pixels on a side": str(run.data.size),
        "tokens of a picture": str(run.tokens),
        "parameters of the denoiser": f"{parameters(run):,}",
        "batch": str(batch),
        "images seen in training": f"{images:,}",
        "steps": f"{images // batch:,}",
        "FLOPs of training": (
            f"{amount(count_training(run, text_tokens(run)).training() * images)}FLOP"
        ),
    }


def _page(name: str, run: RunSpec, make: Any) -> str:
    model = run.model
    shape = {
        "denoiser": (
            f"width {model.width}, depth {model.depth}, {model.heads} heads, patch {model.patch}"
        )
    }
    facts = (
        _sizes(run) | shape | (_on_gpus(run, MACHINES[name]) if name in MACHINES else _here(run))
    )
    first, *others = _words(make)
    block = ["```", *_encoding(name, make), *_command(name, make), "```", ""]
    lines = [f"# {name}", "", first, "", *block, *_placeholders(block, run.data.size)]
    lines += [line for part in others for line in (part, "")]
    lines += [
        "| what | how much |",
        "|---|---|",
        *(f"| {what} | {value} |" for what, value in facts.items()),
        "",
    ]
    lines += [
        "## Its slots",
        "",
        "What each means and may be: [every slot](../reference/slots.md).",
        "",
    ]
    lines += [
        "| slot | value |",
        "|---|---|",
        *(f"| `{path}` | {value} |" for path, value in _slots(run)),
        "",
    ]
    return "\n".join(lines)


def _here(run: RunSpec) -> dict[str, str]:
    return {"memory of a step, by formula": f"{amount(step_memory(run))}B"}


def _on_gpus(run: RunSpec, machine: str) -> dict[str, str]:
    """What a recipe that no one ran here would take; `fulcrum estimate` says the same of any
    machine."""
    told = estimate(run, read_machine(machine))
    cache = sum((told["disk"]["cache"] or {}).values())
    return {
        "text tokens, padding included": f"{told['text_tokens']:.0f}",
        f"step on {machine}, computed": f"{1000 * told['step']['total']:.0f} ms",
        "training, computed": hours_in_words(told["hours"]),
        "filling the cache, computed": (
            f"{told['encoding_gpu_hours']:.1f} GPU hours for {told['pictures']:,} pictures; "
            "reading and decoding them is not in it"
        ),
        "price, computed": (
            f"{money(told['price'])} of training and {money(told['encoding_price'])} of filling the"
            f" cache, at {told['price_per_gpu_hour']:.2f} $ an hour and GPU, an assumption"
        ),
        "memory of a GPU, computed": (
            f"{told['memory_total'] / 1e9:.0f} of {told['memory_of_a_gpu'] / 1e9:.0f} GB"
            + pass_words(told)
        ),
        "rows of a GPU": str(told["rows"]),
        "cache on disk, computed": f"{amount(cache)}B",
        "checkpoints on disk, computed": f"{amount(told['disk']['checkpoints'])}B",
    }


MEANINGS = {
    "STORE": (
        "your pictures, imported: `fulcrum data import PICTURES STORE --size {size}` "
        "([your own pictures](../your-data.md))"
    ),
    "CODEC": "the folder of the autoencoder",
    "TEXT": "the folder of the text encoder",
    "TEACHER": "the folder of DINOv3 ViT-L",
    "SHARED": "a folder that all machines share",
    "HOST": "the first of the machines; the last command is typed on each of them",
}


def _command(name: str, make: Any) -> list[str]:
    """What its docstring says to type, or the plain command."""
    paragraphs = (inspect.getdoc(make) or "").split("\n\n")
    typed = next(
        (part for part in paragraphs if part.startswith("torchrun")), f"fulcrum train {name}"
    )
    return typed.replace("\n", " \\\n  ").splitlines()


def _encoding(name: str, make: Any) -> list[str]:
    """The command that fills the cache on the GPUs of one machine, with what the training is told
    of pictures and parts."""
    typed = " ".join(line.rstrip("\\").strip() for line in _command(name, make))
    if not typed.startswith("torchrun"):
        return []
    words = [
        f"fulcrum encode {name} --processes {NODE} --device cuda",
        *re.findall(r"--out \S+", typed),
    ]
    settings = re.findall(r"--set (?:\"[^\"]*\"|\S+)", typed)
    return [" ".join(words) + " \\", "  " + " ".join(settings)]


def _placeholders(block: Sequence[str], size: int) -> list[str]:
    """What stands for something of the reader's."""
    words = [word for word in MEANINGS if re.search(rf"\b{word}\b", "\n".join(block))]
    told = "; ".join(f"`{word}`: {MEANINGS[word]}" for word in words).replace("{size}", str(size))
    parts = (
        " Folders of networks are what `save_pretrained` wrote, or hub ids:"
        " [networks](../pretrained.md)."
    )
    return [told + "." + parts, ""] if words else []


def _words(make: Any) -> list[str]:
    """The paragraphs of the recipe's docstring, without the command."""
    paragraphs = (inspect.getdoc(make) or "").split("\n\n")
    return [" ".join(part.split()) for part in paragraphs if not part.startswith("torchrun")]


def _slots(run: RunSpec) -> list[tuple[str, str]]:
    rows = []
    for name in RunSpec.model_fields:
        part = getattr(run, name)
        if isinstance(part, Record) and not isinstance(part, Filler):
            rows += [
                (f"{name}.{inner}", _value(getattr(part, inner)))
                for inner in type(part).model_fields
            ]
        else:
            rows.append((name, _value(part)))
    return rows


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_value, value)) or "nothing"
    return "none" if value is None else f"`{value}`".replace("|", "\\|")
