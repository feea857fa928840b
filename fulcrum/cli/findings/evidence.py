"""fulcrum study evidence: the page of all kept studies."""

from pathlib import Path
from typing import Annotated

import typer

from fulcrum.cli.options import Json, emit, say
from fulcrum.spec.progress import awaited


def register_evidence(study: typer.Typer) -> None:
    study.command("evidence", epilog="Example: fulcrum study evidence docs/evidence")(evidence_command)


def evidence_command(
    folder: Annotated[Path, typer.Argument(help="Where studies are kept, each in a folder of its name.")],
    readme: Annotated[
        Path | None, typer.Option(help="A Markdown file with the two evidence marks: its opening is written too.")
    ] = None,
    levers: Annotated[
        Path | None, typer.Option(help="The folder of measured.json, the table of what was measured: it is written too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the page of all kept studies into their folder: the ranking, the claims beside what was seen, pictures.

    The same studies give the same files, byte for byte.
    """
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.studies.verify import results
    from tools.evidence.files import write

    with awaited(f"judging the studies of {folder} again, and drawing their page", say):
        studies = results(folder, CATALOG)
        changed = write(studies, folder, readme, levers)
    what = "\n".join(f"  {path}" for path in changed) or "  nothing: all files are current"
    emit(
        {"studies": list(studies), "written": [str(path) for path in changed]},
        as_json,
        f"{len(studies)} studies; written:\n{what}",
    )
