"""fulcrum audit: what is wrong with a training, most costly and cheapest to mend first."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, Set, emit, say
from fulcrum.files.paths import read_regular
from fulcrum.spec.errors import BadInput
from fulcrum.spec.progress import awaited

PAGES, LOGS = (".html", ".htm"), (".sarif", ".json")  # how the names of written files end
FAULTS = 3  # exit code: faults at or above --fail-on


def register(parent: typer.Typer) -> None:
    parent.command("audit", epilog="Example: fulcrum audit train.py --fail-on error")(audit_command)


def audit_command(
    target: Annotated[
        str | None,
        typer.Argument(
            help=(
                "A training script (.py), a configuration (.yaml, .json, .toml), a folder of them;"
                " a checkpoint "
                "(.safetensors) or "
                "a diffusers folder; a folder, shards or store of pictures; a plan; a run or a"
                " phrase of ours."
            )
        ),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(help="Exit with code 3 from this severity on: note, warning, error, never."),
    ] = "warning",
    values: Annotated[
        int,
        typer.Option(min=0, help="Values to read of each tensor of a checkpoint; 0: headers only."),
    ] = 0,
    rate: Annotated[
        float | None,
        typer.Option(min=0.0, help="Learning rate that a checkpoint is to be trained on with."),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=1, help="Tokens that the text encoder reads of a caption.")
    ] = 77,
    codec: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Autoencoder to try on some pictures of a data set."),
    ] = "",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it as a page, too.")
    ] = None,
    sarif: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write it as SARIF 2.1.0, too: for code hosts and editors."
        ),
    ] = None,
    score: Annotated[
        str,
        typer.Option(
            metavar="world|clip=FOLDER",
            help="Ask of a data set's pairs how well picture and caption fit: by the world's "
            "own scorer (its pictures only), or by CLIP.",
        ),
    ] = "",
    caption: Annotated[
        str,
        typer.Option(
            help="Name of the captions that --score is about; else long, or the first.",
            show_default=False,
        ),
    ] = "",
    rules: Annotated[bool, typer.Option("--rules", help="List all rules instead.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Ask this rule alone. Repeatable.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave this rule out. Repeatable.")
    ] = None,
    out: Out = OUT,
    settings: Set = None,
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Find what is wrong with a training, ordered by expected gain per effort. Nothing is run,
    nothing is changed.

    Exit codes: 0 clean, 3 faults at or above --fail-on, 2 what was asked for cannot be read.

    In a script or YAML file a comment answers a fault: # fulcrum: ignore\\[rule] reason
    """
    if rules:
        return _list_rules(as_json)
    if target is None:
        if levers:
            raise BadInput(
                "laws over a lever have another command now",
                f"fulcrum levers check --with {levers[0]}",
            )
        raise BadInput(
            "nothing was named to audit", "fulcrum audit train.py, or see: fulcrum audit --help"
        )
    from fulcrum.advice.audit import AuditOptions, audit
    from fulcrum.advice.audit_output import text
    from fulcrum.advice.published import own_evidence
    from fulcrum.advice.rule import at_least
    from fulcrum.advice.rules import RULES
    from fulcrum.levers.measured_table import MEASURED

    at_least((), fail_on)  # a wrong word is said before anything is read
    if caption and not score:
        raise BadInput(
            "--caption names the captions that are scored, and nobody scores",
            "such as --score world",
        )
    for place, ends in ((html, PAGES), (sarif, LOGS)):
        _require_page(place, ends, target)
    evidence = own_evidence(out, MEASURED, (rule.lever for rule in RULES))
    sampled, files = values or (4096 if rate else 0), tuple(levers or ())
    options = AuditOptions(
        sampled,
        rate,
        tokens,
        codec,
        out,
        files,
        tuple(settings or ()),
        score,
        caption,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        say=say,
    )
    from fulcrum.files.paths import explained

    with awaited(f"looking at {target}", say):
        report = audit(target, options, evidence)
    if html is not None:
        from fulcrum.advice.audit_output import write_page

        with explained("write", html, hint="name a file in a folder that is there"):
            write_page(report, html)
        say(f"page: {html}")
    if sarif is not None:
        from fulcrum.advice.audit_output import write_sarif

        with explained("write", sarif, hint="name a file in a folder that is there"):
            write_sarif(report, sarif)
        say(f"SARIF: {sarif}")
    grave = at_least(report.faults, fail_on)
    emit({**report.plain(), "fail_on": fail_on, "failing": len(grave)}, as_json, text(report))
    if grave:
        raise typer.Exit(FAULTS)


def _require_page(place: Path | None, ends: tuple[str, ...], target: str) -> None:
    """A page never takes the place of what is audited, nor of a file that no audit wrote."""
    if place is None:
        return
    if place.suffix.lower() not in ends:
        raise BadInput(
            f"{place} would be written over by the audit's page",
            f"name a file that ends in {' or '.join(ends)}",
        )
    foreign = (
        place.suffix.lower() == ".json"
        and place.is_file()
        and b"sarif" not in read_regular(place)[:2_000].lower()
    )
    if foreign or (place.exists() and Path(target).exists() and place.samefile(target)):
        raise BadInput(f"{place} is there already, and no audit wrote it", "name another file")


def _list_rules(as_json: bool) -> None:
    from fulcrum.advice.rules import RULES, looks_at, rule_lines, rule_table

    rows = [
        {
            "id": rule.id,
            "family": rule.family,
            "severity": rule.severity,
            "also": rule.also,
            "looks_at": looks_at(rule),
            "why": rule.why,
            "size": rule.size,
            "source": rule.source,
            "fix": rule.fix,
            "published": rule.published,
        }
        for rule in RULES
    ]
    emit({"rules": rows}, as_json, rule_lines() if sys.stdout.isatty() else rule_table())
