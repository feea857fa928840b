"""fulcrum runs: what is on disk, and tidying it."""

import shutil
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import OUT, Json, Out, emit, find_run
from fulcrum.spec.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="The runs on disk: list, show, remove, tidy.")
Name = Annotated[str, typer.Argument(help="A run: its folder, its key, or the beginning of its key.")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="runs")


@app.command("list")
def list_runs(out: Out = OUT, as_json: Json = False) -> None:
    """Every run with its phrase, seed, progress and size."""
    facts = [_facts(path.parent) for path in sorted(out.glob("*/about.json"))]
    lines = [f"{fact['key'][:8]}  seed {fact['seed']}  {fact['state']:<9} {fact['images']:>10,} images  "
             f"{fact['megabytes']:>7.1f} MB  {fact['phrase']}" for fact in facts]
    emit({"runs": facts}, as_json, "\n".join(lines) or f"no runs under {out}; begin with: fulcrum train spark")


@app.command()
def show(run: Name, out: Out = OUT, as_json: Json = False) -> None:
    """One run: what it is, where it stands, its newest numbers."""
    from fulcrum.train.folder import RunFolder
    folder = RunFolder(find_run(run, out))
    about, facts = folder.about(), _facts(folder.path)
    lines = [f"{facts['phrase']}, seed {facts['seed']}", f"  key      {facts['key']}", f"  state    {facts['state']}",
             f"  images   {facts['images']:,} of {about['run']['budget']['images']:,}", f"  folder   {folder.path}",
             f"  previews {folder.path / 'previews'}"]
    emit({**facts, "run": about["run"]}, as_json, "\n".join(lines))


@app.command("rm")
def remove(run: Name, out: Out = OUT, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
           as_json: Json = False) -> None:
    """Remove a run and all its checkpoints."""
    from fulcrum.train.folder import RunFolder, claim
    path = find_run(run, out)
    facts = _facts(path)
    if not yes and not typer.confirm(f"remove {facts['phrase']} seed {facts['seed']} ({facts['megabytes']:.1f} MB)?"):
        raise BadInput("nothing was removed")
    with claim(RunFolder(path)):
        shutil.rmtree(path)
    emit({"removed": [str(path)]}, as_json, f"removed {path}")


@app.command()
def gc(out: Out = OUT, dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
       as_json: Json = False) -> None:
    """Tidy up: of finished runs keep the last checkpoint only; remove what killed processes left behind."""
    from fulcrum.train import checkpoint
    from fulcrum.train.folder import RunFolder
    gone: list[Path] = []
    for about in sorted(out.glob("*/about.json")):
        folder = RunFolder(about.parent)
        gone += [*folder.checkpoints.glob(".writing-*"), *folder.checkpoints.glob("damaged-*")]
        if folder.result() is not None:
            gone += checkpoint.listing(folder.checkpoints)[:-1]
    freed = sum(_size(path) for path in gone)
    for path in gone if not dry else []:
        shutil.rmtree(path)
    emit({"removed": [str(path) for path in gone], "megabytes": round(freed / 1e6, 1)}, as_json,
         f"{'would free' if dry else 'freed'} {freed / 1e6:.1f} MB in {len(gone)} folders")


def _facts(path: Path) -> dict[str, Any]:
    from fulcrum.train import checkpoint
    from fulcrum.train.folder import RunFolder
    folder = RunFolder(path)
    about, result = folder.about(), folder.result()
    saved = checkpoint.listing(folder.checkpoints)
    return {"key": about["key"], "phrase": about["phrase"], "seed": about["seed"], "path": str(path),
            "state": "finished" if result else "begun", "images": int(saved[-1].name) if saved else 0,
            "megabytes": round(_size(path) / 1e6, 1),
            "changed": datetime.fromtimestamp(path.stat().st_mtime).isoformat(timespec="seconds")}


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
