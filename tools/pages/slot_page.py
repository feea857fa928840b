"""docs/reference/slots.md: every slot of a run with its type, range, default and meaning, read from
the records' source."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args

from fulcrum.spec.record import Filler, Record
from fulcrum.spec.run import During, RunSpec
from fulcrum.spec.words import remarks, setting_words

OPENING = """# Every slot of a run

Written by `make docs` from `fulcrum/spec/run.py` and the fillers' own files; a test keeps it current.

A run is one tree. A slot is a place in it, written `optim.lr`; `--set optim.lr=2e-4` changes one, and a plan's
`settings` do the same. Every slot is part of the run's key. An interval's round bracket leaves its end out: `(0, 1]` is
more than 0 and at most 1. "Of the recipe" means that every recipe gives it.

A slot of a *seam* holds a filler: a kind with settings of its own, as in `--set "flow.weight=min_snr(gamma=5.0)"`. One
setting of the filler that is there is a slot too: `--set sample.guide.scale=3.0`. Sections below list every kind that
fits, with its settings.

"""  # noqa: E501


def slot_page(fillers: tuple[type[Filler], ...]) -> str:
    seams: dict[str, type[Filler]] = {}
    lines = [
        "## All slots",
        "",
        "| slot | type or seam | range | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for path, name, record in _slots():
        field = record.model_fields[name]
        base = _seam(field.annotation)
        kind, interval, default = setting_words(field)
        kind = kind.replace(During.__name__, "stages")
        if base is not None:
            seams[path] = base
            kind, meaning = f"seam: [{_noun(base)}](#{path.replace('.', '')})", _meaning(base)
        else:
            meaning = ""
        meaning = remarks(record).get(name, meaning)
        lines.append(
            f"| `{path}` | {_cell(kind)} | {interval} | {_default(field, default)} |"
            f" {_cell(meaning)} |"
        )
    lines += ["", *_stages(), ""]
    for path, base in seams.items():
        lines += [f"## {path}", "", *_kinds(path, base, fillers)]
    return OPENING + "\n".join(lines)


def _slots() -> Iterator[tuple[str, str, type[Record]]]:
    """Path, field and record of every slot, in the order in which the tree is written."""
    for name, field in RunSpec.model_fields.items():
        part = field.annotation
        if isinstance(part, type) and issubclass(part, Record) and not issubclass(part, Filler):
            yield from ((f"{name}.{inner}", inner, part) for inner in part.model_fields)
        else:
            yield name, name, RunSpec


def _seam(annotation: Any) -> type[Filler] | None:
    """The base record whose fillers fit, also where a slot holds several."""
    if isinstance(annotation, type) and issubclass(annotation, Filler):
        return annotation
    return next((base for part in get_args(annotation) if (base := _seam(part)) is not None), None)


def _noun(base: type[Filler]) -> str:
    return base.__name__.removesuffix("Filler").lower()


def _meaning(base: type[Filler]) -> str:
    """'data.source: where samples come from. More.' -> 'where samples come from'."""
    text = (inspect.getdoc(base) or "").split(":", 1)[-1].split(".")[0]
    return " ".join(text.split())


def _stages() -> list[str]:
    fields, meaning = (
        ", ".join(f"`{name}`" for name in During.model_fields),
        inspect.getdoc(During) or "",
    )
    return [
        f"A stage of `data.stages` ({fields}): {meaning[0].lower()}{meaning[1:]} A lever for a part"
        " of the budget makes one: `pocket + tread @ (0, 0.8)`."
    ]


def _kinds(path: str, base: type[Filler], fillers: tuple[type[Filler], ...]) -> Iterator[str]:
    doc = (inspect.getdoc(base) or "").split(":", 1)[-1].strip()
    yield from (doc[:1].upper() + " ".join(doc[1:].split()), "")
    for filler in sorted(
        (one for one in fillers if issubclass(one, base)), key=lambda one: one.kind
    ):
        doc = " ".join((inspect.getdoc(filler) or "").split())
        yield from (f"### `{filler.kind}`", "", *([doc, ""] if filler.__doc__ and doc else []))
        if filler.model_fields:
            yield from ("| setting | type | range | default | meaning |", "|---|---|---|---|---|")
            for name, field in filler.model_fields.items():
                words = setting_words(field)
                meaning = _cell(remarks(filler).get(name, ""))
                default = _default(field, words.default, "to be given")
                yield f"| `{name}` | {_cell(words.type)} | {words.range} | {default} | {meaning} |"
            yield ""


def _default(field: Any, value: Any, needed: str = "of the recipe") -> str:
    if field.is_required():
        return needed
    if isinstance(value, Record):
        return ""
    text = (
        "none"
        if value is None
        else "''"
        if value == ""
        else "nothing"
        if value == ()
        else str(value)
    )
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
