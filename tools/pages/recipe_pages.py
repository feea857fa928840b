"""docs/recipes: one page for each recipe, with sizes, parameters, budget and arithmetic computed from its description."""

import inspect
import sys
from typing import Any

from fulcrum.cost.denoiser import parameters, step_memory
from fulcrum.cost.run_flops import amount
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.record import Filler, Record
from fulcrum.spec.run import RunSpec
from fulcrum.train.watched.training_cost import count_training

INDEX = """# All recipes

Written by `make docs` from the recipes' own files; a test keeps it current. A recipe is a function that returns a run;
a lever changes one thing of it: `fulcrum train "pocket + muon"`. Your own comes from a file: `--with FILE`
(`docs/write-a-lever.md`). What the small ones draw is in `docs/pictures.md`.

| recipe | pixels | tokens | parameters | batch | images | steps | FLOPs of training |
|---|---|---|---|---|---|---|---|
"""


def recipe_pages(catalogue: Catalogue) -> dict[str, str]:
    """File name -> text of every page."""
    runs = {name: make() for name, make in catalogue.recipes.items()}
    pages = {f"{name}.md": _page(name, run, catalogue.recipes[name]) for name, run in runs.items()}
    rows = [f"| [{name}]({name}.md) | {' | '.join(_sizes(run).values())} |" for name, run in runs.items()]
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
        "FLOPs of training": f"{amount(count_training(run).training() * images)}FLOP",
    }


def _page(name: str, run: RunSpec, make: Any) -> str:
    model, memory = run.model, step_memory(run)
    facts = _sizes(run) | {
        "denoiser": f"width {model.width}, depth {model.depth}, {model.heads} heads, patch {model.patch}",
        "memory of a step, by formula": f"{amount(memory)}B",
    }
    lines = [f"# {name}", "", *_words(name, make), "```", f"fulcrum train {name}", "```", ""]
    lines += ["| what | how much |", "|---|---|", *(f"| {what} | {value} |" for what, value in facts.items()), ""]
    lines += ["## Its slots", "", "What each means and may be: [every slot](../reference/slots.md).", ""]
    lines += ["| slot | value |", "|---|---|", *(f"| `{path}` | {value} |" for path, value in _slots(run)), ""]
    return "\n".join(lines)


def _words(name: str, make: Any) -> list[str]:
    """What its author says of it: the function's docstring, or the module's where the recipe is the module's own."""
    module = sys.modules[make.__module__]
    doc = inspect.getdoc(make) or ""
    if not doc and (module.__doc__ or "").startswith((f"{name}:", "The published")):
        doc = (module.__doc__ or "").removeprefix(f"{name}:").strip()
        doc = doc[0].upper() + doc[1:]
    paragraphs = [part for part in doc.split("\n\n") if part and not part.strip().startswith("fulcrum train")]
    return [line for part in paragraphs for line in (" ".join(part.split()), "")]


def _slots(run: RunSpec) -> list[tuple[str, str]]:
    rows = []
    for name in RunSpec.model_fields:
        part = getattr(run, name)
        if isinstance(part, Record) and not isinstance(part, Filler):
            rows += [(f"{name}.{inner}", _value(getattr(part, inner))) for inner in type(part).model_fields]
        else:
            rows.append((name, _value(part)))
    return rows


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_value, value)) or "nothing"
    return "none" if value is None else f"`{value}`".replace("|", "\\|")
