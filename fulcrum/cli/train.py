"""fulcrum train, sample, export."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.cli.options import (
    OUT,
    Compile,
    DeviceName,
    Files,
    Images,
    Json,
    Out,
    Price,
    Quiet,
    RunName,
    Seed,
    Set,
    Threads,
    catalogue,
    emit,
    note_unfinished,
    say,
)
from fulcrum.spec.errors import BadInput
from fulcrum.spec.printable import shown

if TYPE_CHECKING:
    from fulcrum.spec.seam import StartFiller
    from fulcrum.train.drawing.painter import Painter

MOST_PIXELS = 8192  # of a drawn picture's side


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: fulcrum train "spark + muon" --seed 1')(train)
    app.command(epilog='Example: fulcrum sample RUN "a large red circle at the top left." --count 4')(sample)
    app.command(epilog="Example: fulcrum export RUN my_transformer")(export)


def train(
    phrase: Annotated[str, typer.Argument(help='A recipe and levers: "pocket + muon + tread(drop=0.5)".')],
    seed: Seed = 0,
    images: Images = None,
    out: Out = OUT,
    settings: Set = None,
    levers: Files = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="Begin from the weights of this finished run, or of a PRX transformer's folder in diffusers' format."
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            metavar="NAME",
            help="Show the run in tensorboard or wandb as well; changes nothing of it. Repeatable.",
        ),
    ] = None,
    price: Price = None,
    device: DeviceName = "cpu",
    threads: Threads = None,
    compile_blocks: Compile = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a run. The same command again goes on where it stopped; a finished run is never run twice.

    A run's folder is named by its key, the hash of everything that decides its result. Ctrl-C saves and says how to go
    on; kill -9 loses at most a minute. Many processes share a run: torchrun --nproc-per-node 2 -m fulcrum train ...

    Recipes: spark (the smallest), pocket, pocket_64 (the best pictures), pocket_pixels, pocket_pixels_large, prx_256,
    prx_pixels_1024; or your own, from a file: --with FILE.
    """
    from fulcrum.dist.choose_system import choose_system
    from fulcrum.dist.start import processes
    from fulcrum.levers.catalog import read_phrase
    from fulcrum.spec.edit import put
    from fulcrum.study.run.plain_training import train_run
    from fulcrum.train.run_folder import RunFolder
    from fulcrum.train.session import Order

    read, files = read_phrase(phrase, levers or (), settings or (), images)
    run = read.run if start is None else put(read.run, "start", _start(start, out))
    many = processes(os.environ)
    launcher = ["fulcrum"] if many == 1 else ["torchrun", "--nproc-per-node", str(many), "-m", "fulcrum"]
    order = Order(
        run,
        seed,
        " ".join([str(read), *(f"--set {setting}" for setting in settings or [])]),
        out,
        choose_system(threads, compile_blocks, run.budget.images, device, say),
        files,
        quiet,
        phrase,
        shlex.join([*launcher, *sys.argv[1:]]),
        read.levers,
    )
    result, first = train_run(order, say, track or ())
    if not first:
        return
    result["cost"], cost = _cost(RunFolder(Path(result["run"])), run, out / "cache", price)
    emit(
        result,
        as_json,
        f"{result['phrase']} (seed {seed}) is trained: {result['images']:,} images in "
        f"{_time(result)}\n"
        f"  run      {result['run']}\n  weights  {result['weights_sha256'][:16]}\n"
        f"  cost     {cost}\n"
        f'  draw     fulcrum sample {result["key"][:8]} "a large red circle at the top left."'
        + ("" if out == OUT else f" --out {shlex.quote(str(out))}")
        + "".join(f" --with {shlex.quote(str(file))}" for file in levers or ()),
    )


def _start(start: str, out: Path) -> "StartFiller":
    """The filler of the seam `start`: a folder in diffusers' format, or a finished run of ours."""
    from fulcrum.train.drawing.trained_run import find_run
    from fulcrum.train.fillers import START_PARTS, DiffusersStart, Trunk
    from fulcrum.train.run_folder import RunFolder

    if start.startswith("hub:") or any((Path(start) / part / "config.json").is_file() for part in ("", *START_PARTS)):
        return DiffusersStart(path=start)
    trunk = RunFolder(find_run(start, out))
    result = trunk.result()
    if result is None:
        raise BadInput(f"the run {trunk.path.name} is not finished", "finish it first: start its command again")
    return Trunk(run=trunk.path.name, weights_sha256=result["weights_sha256"])


def _time(result: dict[str, Any]) -> str:
    """Of training, at the speed that the progress told; a result of an older version does not tell the rest apart."""
    more = result.get("preparing_seconds", 0.0)
    return f"{result['seconds']:.0f} s, {result['images_per_second']:,.1f} images/s" + (
        f"; besides {more:.0f} s of encoding and compiling" if more >= 1 else ""
    )


def _cost(folder: Any, run: Any, cache: Path, price: float | None) -> tuple[dict[str, Any], str]:
    """The bill as data and as words. The run is trained by now: a part that cannot be counted is no reason to fail."""
    from fulcrum.train.bill import bill, in_words

    try:
        cost = bill(folder, run, cache, price)
        return cost, in_words(cost)
    except BadInput:
        raise
    except Exception as error:
        return {}, f"not counted: {type(error).__name__}: {error}"


def sample(
    run: RunName,
    prompts: Annotated[list[str], typer.Argument(help="What to draw, one picture each.")],
    seed: Annotated[int, typer.Option(help="Chooses the noises that pictures begin from.")] = 0,
    out: Out = OUT,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Pictures per prompt.")] = 1,
    guidance: Annotated[float | None, typer.Option(help="Another guidance scale than the run's.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, max=10_000, help="Another number of sampling steps.")] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="Another shape than the run's square, in pixels, such as 48x32."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the pictures; default: RUN/samples. Files of the same prompt, number and seed are replaced: "
            "name another folder to compare guidance, steps or sizes."
        ),
    ] = None,
    scale: Annotated[int, typer.Option(min=1, max=32, help="Enlarge the saved pictures.")] = 4,
    levers: Files = None,
    device: DeviceName = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Draw pictures with a trained run. Each picture has its own noise: it does not depend on the others."""
    from fulcrum.encode.unknown_words import misread
    from fulcrum.train.drawing.picture_files import save_grid, save_pictures
    from fulcrum.train.drawing.trained_run import draw

    painter, folder = _painter(run, out, levers, guidance, steps, device, None if size is None else _shape(size))
    place = to or folder / "samples"
    try:
        place.mkdir(parents=True, exist_ok=True)  # before drawing: nobody waits for pictures that have no place
    except OSError as error:
        raise BadInput(f"cannot write to {place}: {error.strerror}", "choose another folder with --to") from None
    wanted = [prompt for prompt in prompts for _ in range(count)]
    pictures = draw(painter, wanted, seed)
    files = save_pictures(pictures, wanted, place, seed, scale)
    grid = save_grid(pictures, place / "grid.png", columns=max(count, min(len(wanted), 4)), scale=scale)
    for line in misread(painter.text):
        say(line)
    emit(
        {"files": [str(path) for path in files], "grid": str(grid)},
        as_json,
        "\n".join(f"{path}  {prompt}" for path, prompt in zip(files, wanted, strict=True)) + f"\n{grid}  all of them",
    )


def _painter(
    name: str,
    out: Path,
    files: list[Path] | None,
    guidance: float | None = None,
    steps: int | None = None,
    device: str = "cpu",
    size: tuple[int, int] | None = None,
) -> "tuple[Painter, Path]":
    """A painter with the weights of a run."""
    from fulcrum.dist.choose_system import device_named
    from fulcrum.train.drawing.trained_run import find_run, open_painter
    from fulcrum.train.run_folder import RunFolder

    device_named(device)  # refused before anything is looked for
    folder = RunFolder(find_run(name, out))
    note_unfinished(folder)
    return open_painter(folder, catalogue(files)[0].fillers, guidance, steps, device, size), folder.path


def _shape(text: str) -> tuple[int, int]:
    """(H, W) from WIDTHxHEIGHT."""
    sides = re.fullmatch("([0-9]{1,5})[xX]([0-9]{1,5})", text)
    width, height = map(int, sides.groups()) if sides else (0, 0)
    if not sides or max(width, height) > MOST_PIXELS:
        raise BadInput(
            f"--size is a width and a height, such as 48x32, of at most {MOST_PIXELS}; found '{shown(text)}'",
            "leave it out for the run's own size",
        )
    return height, width


def export(
    run: RunName,
    folder: Annotated[Path, typer.Argument(help="Where to write the diffusers folder.")],
    out: Out = OUT,
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Write a run's denoiser as diffusers' PRXTransformer2DModel; beside it an embedded codec as AutoencoderKL and the
    embedded text encoder as ModernBertModel with its tokenizer."""
    from fulcrum.encode.networks.kl_codec import KLCodec
    from fulcrum.encode.networks.world_text import WorldText
    from fulcrum.interop.diffusers import export as write
    from fulcrum.interop.diffusers import pipeline_of
    from fulcrum.interop.exported_codec import export_codec
    from fulcrum.interop.exported_text import export_text

    painter, _ = _painter(run, out, levers)
    pipeline = pipeline_of(painter.run)
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} exists and is not empty", "choose a new folder: nothing is overwritten")
    write(painter.backbone, folder)
    lines = f"PRXTransformer2DModel.from_pretrained('{folder}') loads it; its output means what {pipeline} takes it for"
    facts = {"folder": str(folder), "pipeline": pipeline}
    if isinstance(painter.codec, KLCodec):
        facts["codec"] = str(export_codec(painter.codec, folder / "vae"))
        lines += f"\nAutoencoderKL.from_pretrained('{folder}', subfolder='vae') loads the codec that its latents need"
    if isinstance(painter.text, WorldText):
        facts["text"] = str(export_text(painter.text, folder / "text_encoder"))
        lines += (
            f"\nAutoModel and AutoTokenizer.from_pretrained('{folder}', subfolder='text_encoder') load what reads prompts"
        )
    emit(facts, as_json, lines)
