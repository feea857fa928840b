"""fulcrum runs: what is on disk, and tidying it. Only what is surely a run of ours is ever
removed."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, Price, RunName, catalogue, emit, say
from fulcrum.spec.errors import BadInput, FulcrumError, RunFailed, shown
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE

if TYPE_CHECKING:
    from fulcrum.spec.phrase import Catalogue


app = typer.Typer(no_args_is_help=True, help="The runs on disk: list, show, remove, tidy.")


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="runs")


@app.command("list", epilog="Example: fulcrum runs list")
def list_runs(
    out: Out = OUT,
    levers: Files = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Whole lines, however wide the terminal is; so they are too in a pipe or a file.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Every run with its phrase and what was set besides it, data and text encoder, seed, progress
    and size."""
    from fulcrum.training.trained_run import runs_under

    known = catalogue(levers)[0]
    facts = [_facts(path, known) for path in runs_under(out)]
    lines = _aligned(facts)
    if sys.stdout.isatty() and not full and not as_json:
        wide = shutil.get_terminal_size().columns
        fitted = [_fitted(line, wide) for line in lines]
        if fitted != lines:
            say("lines are cut to the terminal; whole ones: fulcrum runs list --full")
        lines = fitted
    emit(
        {"runs": facts},
        as_json,
        "\n".join(lines) or f"no runs under {out}; begin with: fulcrum train spark",
    )


def _aligned(facts: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each run, in columns as wide as what stands in them; what may be long comes
    last."""
    rows = [
        (
            fact["key"][:8],
            f"seed {fact['seed']}",
            # why stands at the end, which may be cut
            fact["state"] + (", old" if _other_science(fact) else ""),
            f"{fact['images']:,} images",
            f"{fact['megabytes']:.1f} MB",
            f"{shown(_what(fact))}{_other_science(fact)}",
        )
        for fact in facts
    ]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{key}  {seed:<{wide[1]}}  {state:<{wide[2]}}  {images:>{wide[3]}}  {size:>{wide[4]}} "
        f" {what}"
        for key, seed, state, images, size, what in rows
    ]


def _fitted(line: str, wide: int) -> str:
    """A line that takes no more places than a terminal has; one that is cut ends with a mark."""
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= wide else set_cell_size(line, max(wide - 1, 0)).rstrip() + "…"


@app.command(epilog="Example: fulcrum runs show RUN --price 0.5")
def show(
    run: RunName, out: Out = OUT, price: Price = None, levers: Files = None, as_json: Json = False
) -> None:
    """One run: what it is, where it stands, what it has cost, where its previews are."""
    from fulcrum.training.trained_run import find_run

    path = find_run(run, out)
    facts, about = _facts(path, catalogue(levers)[0]), _about(path)
    budget = about["run"]["budget"]["images"] if about else 0
    lines = [
        f"{shown(_what(facts))}, seed {facts['seed']}",
        f"  key      {facts['key']}",
        f"  state    {facts['state']}{_other_science(facts)}",
        f"  images   {facts['images']:,} of {budget:,}",
        f"  folder   {path}",
        f"  previews {path / 'previews'}",
    ]
    cost, cost_words = _cost(path, about, out, price, levers) if about else ({}, "")
    lines += [f"  cost     {cost_words}"] if cost_words else []
    emit({**facts, "run": about["run"] if about else None, "cost": cost}, as_json, "\n".join(lines))


def _cost(
    path: Path, about: dict[str, Any], out: Path, price: float | None, levers: list[Path] | None
) -> tuple[dict[str, Any], str]:
    """The run's bill as data and as words; without the user's files that it was trained with there
    is none."""
    from fulcrum.spec.edit import read
    from fulcrum.training.cost_record import bill, in_words
    from fulcrum.training.run_folder import RunFolder

    try:
        cost = bill(
            RunFolder(path), read(about["run"], catalogue(levers)[0].fillers), out / "cache", price
        )
        return cost, in_words(cost)
    except (FulcrumError, OSError) as error:
        if price is not None or levers:
            raise
        return {}, f"not counted: {error}".split("\n")[0]


@app.command("rm", epilog="Example: fulcrum runs rm RUN")
def remove(
    run: RunName,
    out: Out = OUT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a run and all its checkpoints; also one whose files are damaged."""
    from fulcrum.files.atomic import remove_at_once
    from fulcrum.training.run_folder import RunFolder, claim
    from fulcrum.training.trained_run import find_run

    path = find_run(run, out)
    about = _about(path)
    if path.is_symlink() or (about is not None and about.get("key") != path.name):
        raise BadInput(
            f"{path} is not the folder that its about.json speaks of",
            "remove it by hand if you are sure",
        )
    facts = _facts(path, catalogue(None)[0])
    what = shown(f"{_what(facts)} seed {facts['seed']}")
    if not yes and not typer.confirm(f"remove {what} ({facts['megabytes']:.1f} MB)?"):
        raise BadInput("nothing was removed")
    with claim(RunFolder(path)):
        remove_at_once(path)
    emit({"removed": [str(path)]}, as_json, f"removed {path}")


@app.command(epilog="Example: fulcrum runs gc --dry-run")
def gc(
    out: Out = OUT,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Tidy up: keep the last good checkpoint of finished runs, remove what killed processes left;
    not runs in use."""
    from fulcrum.files.atomic import sweep
    from fulcrum.training.run_folder import RunFolder, claim
    from fulcrum.training.trained_run import runs_under

    gone: list[Path] = []
    freed = 0
    for path in runs_under(out):
        if _about(path) is None:
            continue
        try:
            with claim(RunFolder(path), patience=0.0):
                for old in _superfluous(RunFolder(path)):
                    freed += _size(old)
                    gone.append(old)
                    if not dry:
                        shutil.rmtree(old)
        except RunFailed:
            say(f"{path.name} is in use: left alone")
    gone += [] if dry or not out.is_dir() else sweep(out)  # runs whose removal was killed
    emit(
        {"removed": [str(path) for path in gone], "megabytes": round(freed / 1e6, 1)},
        as_json,
        f"{'would free' if dry else 'freed'} {freed / 1e6:.1f} MB in {len(gone)} folders",
    )


def _superfluous(folder: Any) -> list[Path]:
    """Half-written and damaged checkpoints, and in a finished run whose last checkpoint is sound,
    those before it."""
    from fulcrum.training import checkpoint
    from fulcrum.training.kept_weights import KEPT

    kept = folder.path / KEPT
    if folder.checkpoints.is_symlink() or kept.is_symlink():
        return []
    left = [*checkpoint.leftovers(folder.checkpoints), *checkpoint.leftovers(kept)]
    saved = [
        path for path in checkpoint.listing(folder.checkpoints) if (path / "state.json").is_file()
    ]
    try:
        if folder.result() is not None and saved:
            checkpoint.load(saved[-1])
            left += saved[:-1]
    except FulcrumError:
        say(f"the last checkpoint of {folder.path.name} is damaged: the older ones are kept")
    return [path for path in left if path.is_dir() and not path.is_symlink()]


def _about(path: Path) -> dict[str, Any] | None:
    """The run's description, or None when it is damaged."""
    from fulcrum.training.run_folder import RunFolder

    try:
        about = RunFolder(path).about()
        whole = {"key", "seed", "phrase"} <= set(about) and isinstance(
            about.get("science", FIRST_SCIENCE), int
        )
        return about if whole and about["run"]["budget"]["images"] else None
    except (FulcrumError, KeyError, TypeError, RecursionError):
        return None


def _facts(path: Path, known: "Catalogue") -> dict[str, Any]:
    from fulcrum.training.run_folder import RunFolder, in_use
    from fulcrum.training.trained_run import images_seen

    about = _about(path)
    try:
        state = (
            "damaged"
            if about is None
            else (
                "finished"
                if RunFolder(path).result()
                else (
                    "training"
                    if in_use(RunFolder(path))
                    else "failed"
                    if any(path.glob("failed-*.json"))
                    else "stopped"
                )
            )
        )
    except FulcrumError:
        state = "damaged"
    return {
        "key": path.name,
        "phrase": about["phrase"] if about else "?",
        **(_read_as(about, known) if about else {}),
        "seed": about["seed"] if about else "?",
        "path": str(path),
        "state": state,
        "science": about.get("science", FIRST_SCIENCE) if about else None,
        "images": images_seen(RunFolder(path)),
        "megabytes": round(_size(path) / 1e6, 1),
    }


def _read_as(about: dict[str, Any], known: "Catalogue") -> dict[str, Any]:
    """What was set besides the phrase, data and text encoder; nothing without the user's files that
    it was trained with."""
    from fulcrum.spec.edit import read
    from fulcrum.spec.phrase import parse
    from fulcrum.spec.words import in_brief, of_start, set_besides, start_name

    facts: dict[str, Any] = {}
    try:
        run = read(about["run"], known.fillers)
        text = (
            f"of {start_name(run)}" if of_start(run, run.encode.text) else in_brief(run.encode.text)
        )
        facts = {"data": in_brief(run.data.source), "text": text}
        facts["set"] = set_besides(run, parse(_phrase(about["phrase"]), known).run)
    # a phrase or part that only a user's file knows
    except (FulcrumError, TypeError, AttributeError, RecursionError):
        pass
    return facts


def _what(facts: dict[str, Any]) -> str:
    """'spark + muon, set: optim.lr=0.002; data world; text world_text'."""
    if "data" not in facts:
        return (
            f"{facts['phrase']}"
            f"{'' if facts['state'] == 'damaged' else '; more is known with its file: --with FILE'}"
        )
    words = _phrase(facts["phrase"]) + (
        f", set: {', '.join(facts['set'])}" if facts.get("set") else ""
    )
    return f"{words}; data {facts['data']}; text {facts['text']}"


def _phrase(text: str) -> str:
    """Without what `fulcrum train` was told to set, which follows it."""
    return text.partition(" --set ")[0]


def _other_science(facts: dict[str, Any]) -> str:
    """What to know of a run that another version made; the same command would train anew beside
    it."""
    if facts["science"] in (SCIENCE, None):
        return ""
    return (
        f"  (by version {facts['science']} of the science, this is {SCIENCE}: readable, not gone on"
        " with)"
    )


def _size(path: Path) -> int:
    return sum(
        file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink()
    )
