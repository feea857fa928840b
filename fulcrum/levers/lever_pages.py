"""docs/levers: one page for each lever, written from its card, its diff, its cost, its conflicts
and what was measured."""

from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_atomic
from fulcrum.levers.base import ANY, Claim
from fulcrum.levers.laws import GROUNDS, Ground, ground_of, usable
from fulcrum.levers.measured_table import in_sum, read_measured
from fulcrum.spec.edit import diff
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, apply


def pages(catalogue: Catalogue) -> dict[str, str]:
    """File name -> text of every page."""
    measured = read_measured()
    known = {name: usable(cls(), catalogue) for name, cls in catalogue.levers.items()}
    texts = {
        f"{name}.md": _page(
            cls, catalogue, known, [row for row in measured if row["lever"] == name]
        )
        for name, cls in catalogue.levers.items()
    }
    texts |= {f"{name}.md": _bundle_page(cls) for name, cls in catalogue.bundles.items()}
    texts["README.md"] = _index(catalogue, measured)
    return texts


def write(catalogue: Catalogue, folder: Path) -> list[Path]:
    """Write all pages; pages of levers that are gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(catalogue)
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        write_atomic(folder / name, text, flush=False)
    return [folder / name for name in made]


def _page(
    cls: Any, catalogue: Catalogue, known: dict[str, list[Ground]], measured: list[dict[str, Any]]
) -> str:
    lever, card = cls(), cls.card
    ground = ground_of(lever, catalogue)
    cost = lever.cost(ground.run)
    lines = [f"# {cls.name}", "", _sentence(card.says), ""]
    if card.warns:
        lines += [f"**Mind:** {_sentence(card.warns)}", ""]
    if text := in_sum(measured):
        lines += [f"**Here:** {text}", ""]
    lines += [
        "## Settings",
        "",
        *(f"- `{name}` = `{field.default}`" for name, field in cls.model_fields.items()),
        *(["none"] if not cls.model_fields else []),
        "",
    ]
    lines += [
        f"## What it changes ({_tried(ground)})",
        "",
        "| slot | without | with |",
        "|---|---|---|",
        *(
            f"| `{change.path}` | `{_short(change.before)}` | `{_short(change.after)}` |"
            for change in diff(ground.run, lever.edit(ground.run))
        ),
        "",
        f"It may touch {', '.join(f'`{slot}`' for slot in cls.touches)}; it affects"
        f" {', '.join(cls.affects)}. "
        + ("Nothing of it is left in the exported model." if card.train_only else ""),
        "",
        *([f"There {text}.", ""] if (text := lever.in_run(lever.edit(ground.run))) else []),
    ]
    lines += [
        "## What it costs",
        "",
        (
            f"In the laws' tiny run: FLOPs × {cost.flops:.3f}, memory × {cost.memory:.3f}, "
            f"parameters × {cost.parameters:.3f} of a training step. For your own run: "
            f"`fulcrum levers show {cls.name} --recipe pocket`."
        ),
        "",
    ]
    lines += ["## What was claimed", "", *_claims(card), ""]
    lines += ["## What we measured", "", *_measured(measured), ""]
    lines += ["## Conflicts", "", _conflicts(lever, catalogue, known), ""]
    return "\n".join(lines)


def _bundle_page(cls: Any) -> str:
    parts = cls().parts()
    return "\n".join(
        [
            f"# {cls.name} (a bundle)",
            "",
            _sentence(cls.card.says),
            "",
            *([f"**Mind:** {_sentence(cls.card.warns)}", ""] if cls.card.warns else []),
            (
                "A bundle is several levers under one name: an arm's effect belongs to all of them"
                " together."
            ),
            "",
            "## Its parts",
            "",
            *(f"- [{part.name}]({part.name}.md), as `{part}`" for part in parts),
            "",
        ]
    )


def _index(catalogue: Catalogue, measured: list[dict[str, Any]]) -> str:
    lines = [
        "# All levers",
        "",
        "Written by `make docs` from the levers' own files; a test keeps it current.",
        "",
        "| lever | what it does | FLOPs of a step | claimed | measured here |",
        "|---|---|---|---|---|",
    ]
    for name, cls in catalogue.levers.items():
        ground = ground_of(cls(), catalogue)
        claims = (
            "; ".join(f"{claim.metric} {claim.change:+g}" for claim in cls.card.claims)
            or "no number"
        )
        own = (
            "; ".join(map(_found, _newest([row for row in measured if row["lever"] == name])))
            or "not yet"
        )
        lines.append(
            f"| [{name}]({name}.md) | {cls.card.says} | × {cls().cost(ground.run).flops:.2f} |"
            f" {claims} | {own} |"
        )
    lines += [
        "",
        "Bundles: " + ", ".join(f"[{name}]({name}.md)" for name in catalogue.bundles) + ".",
        "",
    ]
    return "\n".join(lines)


def _newest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the last version of the science that has any."""
    return [row for row in rows if row["science"] == max(one["science"] for one in rows)]


def _found(row: dict[str, Any]) -> str:
    effect = f"{row['metric']} {row['change']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]"
    recipe = " with ".join(filter(None, (row["recipe"], ", ".join(row.get("settings", [])))))
    added = row.get("arm", row["lever"])
    return (
        f"{effect} ({'' if added == row['lever'] else f'{added}, '}{recipe}, science"
        f" {row['science']})"
    )


def _claims(card: Any) -> list[str]:
    if not card.claims:
        return ["No number was published that this lever could be held against."]
    return [
        "| metric | change | where | source | note |",
        "|---|---|---|---|---|",
        *(
            f"| {claim.metric} | {claim.change:+g} | {claim.scope} | {claim.source} |"
            f" {_about(claim)} |"
            for claim in card.claims
        ),
    ]


def _about(claim: Claim) -> str:
    """What to know of a claim: its note, and what it is about beside the lever as it stands."""
    asked = [f"{name}={value}" for name, value in claim.settings.items() if value != ANY]
    facts = [
        claim.note,
        f"about {', '.join(asked)}" if asked else "",
        (
            f"the published arm also had {claim.also} on: the number belongs to both"
            if claim.also
            else ""
        ),
        "" if claim.carries else "depends on the scale",
    ]
    return "; ".join(fact for fact in facts if fact)


def _measured(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["Nothing yet."]
    return [
        "| recipe | science | metric | change [95 %] | pairs | verdict | date | note |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['recipe']} | {row['science']} | {row['metric']} | {row['change']:+.4g}"
            f" [{row['low']:+.4g}, {row['high']:+.4g}] | {row['pairs']} | {row['verdict']} |"
            f" {row['date']} | {row['note']} |"
            for row in rows
        ),
        "",
        (
            "Rows of different science versions are not compared: worlds, recipes, networks and"
            " levers changed between them (`CHANGELOG.md`)."
        ),
    ]


def _conflicts(lever: Any, catalogue: Catalogue, known: dict[str, list[Ground]]) -> str:
    """Found by trying, never declared: levers that cannot stand beside it on the first ground that
    both fit."""
    refused = []
    for name, cls in catalogue.levers.items():
        names = {ground.name for ground in known[name] if name != lever.name}
        shared = [ground for ground in known[lever.name] if ground.name in names]
        if shared and _refused(shared[0], lever, cls()):
            refused.append(f"[{name}]({name}.md)")
    return "In conflict with " + ", ".join(refused) + "." if refused else "With none of the others."


def _refused(ground: Ground, one: Any, other: Any) -> bool:
    try:
        apply(ground.run, (one, other))
    except BadInput:
        return True
    return False


def _tried(ground: Ground) -> str:
    settings = ", ".join(GROUNDS[ground.name])
    return f"in the laws' tiny run, {settings}" if settings else "in the laws' tiny run"


def _sentence(text: str) -> str:
    """A setting or a symbol at its beginning keeps its spelling."""
    first = text.split()[0]
    begun = text if "_" in first or "=" in first else text[0].upper() + text[1:]
    return begun + ("" if text.endswith(".") else ".")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 90 else text[:87] + "…"
