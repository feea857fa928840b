"""fulcrum sample: draw pictures with one or several trained runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fulcrum.cli.options import (
    OUT,
    DeviceName,
    Files,
    Json,
    Out,
    Quiet,
    RunName,
    catalogue,
    emit,
    note_unfinished,
    say,
)
from fulcrum.spec.errors import BadInput, shown
from fulcrum.spec.progress import Tally

if TYPE_CHECKING:
    from torch import Tensor

    from fulcrum.training.painter import Painter
    from fulcrum.training.pictures import PictureRequest, Variant


# --------------------------------------------------------------------------------------------------
# Prompts from a file or from standard input, one on a line.


MOST_BYTES, MOST_PROMPTS = 8 << 20, 10_000


def prompt_lines(source: str) -> list[str]:
    """The lines of a text file, or of standard input for "-"; empty ones are passed over."""
    from fulcrum.files.paths import read_regular

    name = "standard input" if source == "-" else source
    try:
        data = (
            sys.stdin.buffer.read(MOST_BYTES + 1)
            if source == "-"
            else read_regular(Path(source), limit=MOST_BYTES)
        )
        lines = [line.strip() for line in data.decode("utf-8-sig").splitlines()]
    except OSError as error:
        raise BadInput(
            f"the prompts cannot be read: {error}", "expected a text file with one prompt on a line"
        ) from None
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name} is no UTF-8 text: {error.reason} at byte {error.start}", "save it as UTF-8"
        ) from None
    prompts = [line for line in lines if line]
    if not prompts:
        raise BadInput(f"{name} holds no prompt", "write one on a line")
    if len(prompts) > MOST_PROMPTS or len(data) > MOST_BYTES:
        raise BadInput(
            f"{name} holds more than {MOST_PROMPTS:,} prompts or 8 MB", "draw them in several goes"
        )
    return prompts


# --------------------------------------------------------------------------------------------------
# fulcrum sample: pictures of a trained run, or of several side by side.


MOST_PICTURES = 100_000  # of one command


def register(app: typer.Typer) -> None:
    app.command(
        epilog='Example: fulcrum sample RUN "a large red circle at the top left." --count 4'
    )(sample)


def sample(
    run: RunName,
    prompts: Annotated[
        list[str] | None, typer.Argument(help="What to draw, one picture each.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--prompts", metavar="FILE", help="More prompts, one on a line; - reads standard input."
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against", metavar="RUN", help="Another run to draw the same with. Repeatable."
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            help="Chooses the noises that pictures begin from; 0 unless said. Repeatable."
        ),
    ] = None,
    out: Out = OUT,
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="Pictures per prompt and seed.")
    ] = 1,
    guidance: Annotated[
        list[float] | None, typer.Option(help="Another guidance scale than the run's. Repeatable.")
    ] = None,
    steps: Annotated[
        list[int] | None,
        typer.Option(min=1, max=10_000, help="Another number of sampling steps. Repeatable."),
    ] = None,
    negative: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="What not to draw: guidance leads away from it, not from the empty prompt.",
        ),
    ] = "",
    solver: Annotated[
        Literal["euler", "midpoint"],
        typer.Option(help="midpoint is of second order, and takes two passes a step."),
    ] = "euler",
    size: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="Another shape than the run's square, in pixels, such as 48x32.",
        ),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="IMAGES",
            help="Draw with the weights after so many images of training, if kept.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder for the pictures; default: RUN/samples. No file is replaced: names are"
                " numbered on."
            )
        ),
    ] = None,
    scale: Annotated[int, typer.Option(min=1, max=32, help="Enlarge the saved pictures.")] = 4,
    levers: Files = None,
    device: DeviceName = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw pictures with a trained run. Each picture has its own noise: it does not depend on the
    others.

    Several seeds, guidances, step counts or runs (--against) are drawn with the same noises and
    compared on one sheet. Every PNG says how it was drawn: prompt, seed, key and settings.
    """
    from fulcrum.networks.text import misread, readable
    from fulcrum.training.pictures import (
        MOST_SHOWN,
        comparison_sheet,
        drawn,
        picture_size,
        rows_of,
        variants_of,
    )

    wanted = [*(prompts or ()), *(prompt_lines(file) if file is not None else ())]
    if not wanted:
        raise BadInput(
            "nothing to draw",
            'give a prompt, such as "a large red circle at the top left.", or --prompts FILE',
        )
    rows = rows_of(wanted, list(dict.fromkeys(seed or [0])), count)
    shape = None if size is None else picture_size(size)
    names = list(dict.fromkeys([run, *(against or ())]))
    several = len(guidance or [0]) * len(steps or [0]) * len(names)
    if len(rows) * several > MOST_PICTURES:
        raise BadInput(
            f"{len(rows) * several:,} pictures in one go",
            f"at most {MOST_PICTURES:,}: draw fewer at a time",
        )
    opened = [_painter(name, out, levers, device, shape, negative, solver, at) for name in names]
    place = to or opened[0][2] / "samples"
    try:
        # before drawing: nobody waits for pictures that have no place
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot write to {place}: {error.strerror}", "choose another folder with --to"
        ) from None
    painters = [(path.name, label, painter) for painter, label, path in opened]
    variants = list(
        variants_of(painters, list(dict.fromkeys(guidance or ())), list(dict.fromkeys(steps or ())))
    )
    pictures, tally = (
        [],
        Tally("drawn", len(rows) * len(variants), None if quiet else say, "pictures"),
    )
    for number, variant in enumerate(variants, 1):
        if len(variants) > 1 and not quiet:
            say(
                f"{number} of {len(variants)}: {variant.name}, guidance {variant.guidance:g},"
                f" {variant.steps} steps"
            )
        before = len(rows) * (number - 1)
        pictures.append(drawn(variant, rows, lambda done, before=before: tally.tell(before + done)))  # type: ignore[misc]
    files = _save(variants, rows, pictures, place, scale, negative, solver, at)
    grid = _grid(place, comparison_sheet(variants, rows, pictures, scale))
    asked = [*wanted, *([negative] if negative else [])]
    lines = [
        line
        for painter, _, _ in opened
        for line in (*readable(painter.text, asked)[1], *misread(painter.text))
    ]
    for line in dict.fromkeys(lines):
        say(line)
    captions = [row.prompt for _ in variants for row in rows]
    emit(
        {"files": [str(path) for path in files], "grid": str(grid)},
        as_json,
        "\n".join(f"{path}  {shown(prompt)}" for path, prompt in zip(files, captions, strict=True))
        + f"\n{grid}  {'all of them' if len(files) <= MOST_SHOWN else 'the first of them'}",
    )


def _save(
    variants: "list[Variant]",
    rows: "list[PictureRequest]",
    pictures: "list[list[Tensor]]",
    place: Path,
    scale: int,
    negative: str,
    solver: str,
    at: int | None,
) -> list[Path]:
    """One PNG for each picture, with all that it takes to draw it again, and a list of the
    prompts."""
    from fulcrum.files.atomic import write_new
    from fulcrum.training.pictures import file_ending, file_words, picture_facts, save_picture

    files, lines = [], []
    for variant, column in zip(variants, pictures, strict=True):
        for row, picture in zip(rows, column, strict=True):
            facts = picture_facts(variant, row, picture, scale, negative, solver, at)
            name = (
                f"{file_words(row.prompt)}-{row.number:03d}-seed{row.seed}"
                f"{file_ending(variant, variants)}"
            )
            files.append(save_picture(picture, place, name, facts, scale))
            lines.append(f"{files[-1].name}\t{shown(row.prompt)}\n")
    write_new(place / "prompts.txt", "".join(lines).encode())
    return files


def _grid(place: Path, sheet: object) -> Path:
    from fulcrum.files.atomic import write_new
    from fulcrum.training.pictures import png

    return write_new(place / "grid.png", png(sheet, {"Software": "fulcrum"}))  # type: ignore[arg-type]


def _painter(
    name: str,
    out: Path,
    files: list[Path] | None,
    device: str,
    size: tuple[int, int] | None,
    negative: str,
    solver: str,
    at: int | None,
) -> "tuple[Painter, str, Path]":
    """A painter with the weights of a run, what the run is called, and where it lies."""
    from fulcrum.training.dist.choose_system import device_named
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run, open_painter, run_label

    device_named(device)  # refused before anything is looked for
    folder = RunFolder(find_run(name, out))
    if at is None:
        note_unfinished(folder)
    about, fillers = folder.about(), catalogue(files)[0].fillers
    painter = open_painter(
        folder, fillers, device=device, size=size, negative=negative, solver=solver, at=at
    )
    return painter, run_label(about), folder.path
