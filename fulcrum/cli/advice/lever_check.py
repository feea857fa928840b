"""fulcrum levers check: hold a lever to the laws that every lever of the catalogue keeps."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.cli.options import Files, Json, catalogue, emit, say
from fulcrum.spec.errors import BadInput, RunFailed, nearest
from fulcrum.spec.progress import Tally, awaited

if TYPE_CHECKING:
    from fulcrum.spec.run import Device

Names = Annotated[list[str] | None, typer.Argument(help="Levers to try; default: those of the given files.")]


def register_check(parent: typer.Typer) -> None:
    parent.command("check", epilog="Example: fulcrum levers check tread")(check_levers)


def check_levers(names: Names = None, levers: Files = None, as_json: Json = False) -> None:
    """Try levers on tiny real models: what they declare, whether they commute, are really on, resume, leave, cost.

    A lever that breaks a law would make a study say something untrue. Half a minute for one.
    """
    known, _ = catalogue(levers)
    built_in, _ = catalogue(None)
    chosen = list(names or [name for name in known.levers if name not in built_in.levers])
    if not chosen:
        raise BadInput(
            "no lever was named", "give a file with --with my_lever.py, or names: fulcrum levers check tread muon"
        )
    for name in chosen:
        if name not in known.levers:
            raise BadInput(f"no lever is called '{name}'", nearest(name, known.levers))
    verdicts = tried_levers(known, chosen, levers or [])
    broken = [one for one in verdicts if one["broken"]]
    if broken and not as_json:
        raise RunFailed(
            f"{len(broken)} of {len(verdicts)} (lever, law) pairs are broken", "correct the lever: docs/write-a-lever.md"
        )
    emit(
        {"pairs": len(verdicts), "broken": len(broken), "laws": verdicts},
        as_json,
        f"all {len(verdicts)} (lever, law) pairs hold",
    )
    if broken:
        raise typer.Exit(1)


def tried_levers(known: Any, chosen: list[str], files: list[Path], device: "Device" = "cpu") -> list[dict[str, Any]]:
    """Every law over every chosen lever. That one process equals two is asked of the CPU only: elsewhere it wants two."""
    import tempfile
    import warnings

    import torch

    from fulcrum.levers.laws import LAWS, BrokenLaw, Court
    from fulcrum.levers.two_processes import verdicts
    from fulcrum.spec.phrase import described
    from fulcrum.spec.run import System

    torch.set_num_threads(1)
    tried: list[dict[str, Any]] = []
    tally = Tally("tried", len(chosen) * len(LAWS), say, "laws; after them one process is held against two")
    with tempfile.TemporaryDirectory() as folder:
        court = Court(known, Path(folder), System(device=device))
        for name in chosen:
            for law, hold in LAWS.items():
                problem = ""
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        hold(court.case(known.levers[name]()))
                except BrokenLaw as error:
                    problem = str(error)
                except Exception as error:  # the user's own code may raise anything: it is a finding
                    problem = f"'{name}' failed: {described(error)}"
                tried.append(_verdict(name, law, (hold.__doc__ or "").split("\n")[0], problem))
                tally.tell(len(tried))
        if device != "cpu":
            return tried
        folder_of_two = Path(folder) / "world"
        folder_of_two.mkdir()
        try:
            with awaited("one process is held against two", say):
                together = verdicts(chosen, known, folder_of_two, tuple(files))
        except Exception as error:
            together = dict.fromkeys(chosen, f"two processes failed: {described(error)}\n{getattr(error, 'hint', '')}")
        tried += [_verdict(name, "world", "One process equals two.", problem) for name, problem in together.items()]
    return tried


def _verdict(lever: str, law: str, says: str, problem: str) -> dict[str, Any]:
    say(f"{lever:<24} {law:<10} {'BROKEN  ' + problem if problem else 'holds'}")
    return {"lever": lever, "law": law, "says": says, "broken": problem}
