"""fulcrum train: a run from its phrase to its result."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
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
    Mesh,
    Microbatch,
    OnAlarm,
    Out,
    Price,
    Quiet,
    RecomputeBlocks,
    SaveEvery,
    Seed,
    Set,
    Threads,
    Timeout,
    emit,
    recipe_names,
    say,
    speaks,
)
from fulcrum.cli.trained.next_command import finish_first, sample_command
from fulcrum.cli.trained.prompt_lines import prompt_lines
from fulcrum.files.paths import at_home
from fulcrum.spec.errors import BadInput

if TYPE_CHECKING:
    from fulcrum.spec.edit import Change
    from fulcrum.spec.run import RunSpec
    from fulcrum.spec.slots import StartFiller


STARTS = "a start is a finished run (its key or folder), the folder of a PRX pipeline, or hub:org/name"


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: fulcrum train "spark + muon" --seed 1')(train)


def train(
    phrase: Annotated[
        str,
        typer.Argument(help='A recipe and levers: "pocket + muon + tread(drop=0.5)".', autocompletion=recipe_names),
    ],
    seed: Seed = 0,
    images: Images = None,
    out: Out = OUT,
    settings: Set = None,
    levers: Files = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="Begin from the weights of this finished run, of a PRX transformer's folder in diffusers' format, or of a "
            "whole PRX pipeline (a folder or hub:org/name): that brings sizes, codec and text encoder too."
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
    preview_prompts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw previews of these prompts, one on a line, instead of held-out captions."),
    ] = None,
    preview_every: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="IMAGES", help="Draw previews whenever so many images were seen; 0: never. Default: 5 times."
        ),
    ] = None,
    keep_checkpoints: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            metavar="COUNT",
            help="Keep the weights that draw at so many points of the training, for fulcrum gallery; costs only disk.",
        ),
    ] = 0,
    most_skipped: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="SHARE",
            help="With optim.not_finite=skip: the training fails when more than this share of its steps was left out.",
        ),
    ] = 0.05,
    on_alarm: OnAlarm = None,
    timeout: Timeout = None,
    price: Price = None,
    device: DeviceName = "cpu",
    threads: Threads = None,
    compile_blocks: Compile = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Train nothing: tell shapes, parameters, FLOPs, memory by part and disk. Needs no picture, no GPU and no "
            "pretrained part.",
        ),
    ] = False,
    mesh: Mesh = None,
    microbatch: Microbatch = None,
    recompute: RecomputeBlocks = None,
    save_every: SaveEvery = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a run. The same command again goes on where it stopped; a finished run is never run twice.

    A run's folder is named by its key, the hash of everything that decides its result. Ctrl-C saves and says how to go
    on; kill -9 loses about a minute where saving is cheap, half an hour at most. Many processes share a run:
    torchrun --nproc-per-node 2 -m fulcrum train ...

    Recipes: spark (the smallest), pocket, pocket_64 (the best pictures), pocket_pixels, pocket_pixels_large; the published
    full sizes, for GPUs: prx_256, prx_256_flux2, prx_256_repa_e, prx_pixels_1024, prx_7b, speedrun_24h; or your own, from
    a file: --with FILE. A run that cannot fit into memory is refused, with what would fit; --dry-run tells every part.
    """
    from fulcrum.levers.catalog import read_phrase
    from fulcrum.measure.preview import PreviewPlan, train_run
    from fulcrum.spec.edit import require_seed
    from fulcrum.spec.phrase import overridden
    from fulcrum.training.dist.choose_system import choose_system
    from fulcrum.training.dist.ranks import TIMEOUT, processes
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.session import Order
    from fulcrum.training.trackers import require_trackers

    require_seed(seed)
    for lost in overridden([*(settings or ()), *(["budget.images"] * (images is not None))]):
        say(f"note: {lost}")
    read, files = read_phrase(phrase, levers or (), settings or (), images)
    run = read.run if start is None else _begun(read.run, start, out, settings or ())
    many = processes(os.environ)
    if dry_run:
        run.start.require_fit(run)
        asked = {"mesh": mesh, "microbatch": microbatch, "recompute": recompute, "compile": compile_blocks}
        _tell_sizes(run, phrase, asked, many, as_json)
        return
    system = choose_system(
        threads,
        compile_blocks,
        run.budget.images,
        device,
        say,
        many,
        mesh=mesh,
        microbatch=microbatch,
        recompute=recompute,
        save_every=save_every,
        on_alarm=on_alarm,
    )
    order = Order(
        run,
        seed,
        " ".join([str(read), *(f"--set {setting}" for setting in settings or [])]),
        out,
        system,
        files,
        quiet,
        phrase,
        resume_command(sys.argv[1:], many, os.environ),
        read.levers,
        most_skipped,
    )
    if "tensorboard" in (track or ()):
        require_trackers(track or ())
        curves = out / "tensorboard"
        say(f"curves go to {curves}; look at them with: tensorboard --logdir {shlex.quote(str(curves))}")
    plan = PreviewPlan(tuple(prompt_lines(preview_prompts)) if preview_prompts is not None else (), preview_every)
    result, first = train_run(order, say, track or (), plan, keep_checkpoints, timeout or TIMEOUT)
    if not first:
        return
    result["cost"], cost = _cost(RunFolder(Path(result["run"])), run, out / "cache", price)
    emit(
        result,
        as_json,
        f"{result['phrase']} (seed {seed}) is trained: {result['images']:,} images in "
        f"{_time(result)}{_skipped(result, run)}\n"
        f"  run      {result['run']}\n  weights  {result['weights_sha256'][:16]}\n"
        f"  cost     {cost}\n"
        f"  draw     {sample_command(run, result['key'], out, levers or ())}",
    )


def resume_command(words: Sequence[str], processes: int, env: Mapping[str, str]) -> str:
    """What a person types to go on. Of several machines, or started by srun, nobody here knows what was typed: nothing."""
    if processes == 1:
        return shlex.join(["fulcrum", *words])
    if env.get("LOCAL_WORLD_SIZE") != str(processes):  # torchrun's word for those of this machine
        return ""
    return shlex.join(["torchrun", "--nproc-per-node", str(processes), "-m", "fulcrum", *words])


def _tell_sizes(run: "RunSpec", phrase: str, asked: dict[str, Any], processes: int, as_json: bool) -> None:
    """What a dry run says; where nobody says whether blocks are compiled, they count as in a run of this length."""
    from fulcrum.cli.trained.size_words import dry_run_words
    from fulcrum.training.dist.choose_system import asked_system, is_compiled
    from fulcrum.training.estimate import dry_run

    system = asked_system({**asked, "compile": is_compiled(asked["compile"], run.budget.images)})
    sizes = dry_run(run, system, processes, [name for name, word in asked.items() if word is not None])
    if speaks():
        emit(sizes, as_json, dry_run_words(sizes, phrase))


def _begun(run: "RunSpec", start: str, out: Path, settings: Sequence[str]) -> "RunSpec":
    """The run from where it begins; what a pipeline brings besides its weights is told."""
    from fulcrum.spec.edit import diff, put
    from fulcrum.training.start_weights import begun_from, pipeline_index

    if (index := pipeline_index(start)) is None:
        return put(run, "start", _start(start, out))
    begun = begun_from(run, start, index, [setting.partition("=")[0].strip() for setting in settings])
    changes = [f"{change.path}={_brought(begun, change)}" for change in diff(run, begun) if change.path != "start"]
    say(f"from the {index['_class_name']} at {start}: " + (", ".join(changes) or "its weights alone"))
    return begun


def _brought(begun: "RunSpec", change: "Change") -> str:
    """What a pipeline fills a slot with, without its folder, which is named already, and with the limit that counts."""
    if change.path not in ("encode.codec", "encode.text"):
        return str(change.after)
    part = getattr(begun.encode, change.path.removeprefix("encode."))
    told = [f"{name}={getattr(part, name)}" for name in ("network", "stride", "channels", "width") if hasattr(part, name)]
    told += [f"at most {part.most_tokens()} tokens"] if change.path == "encode.text" else []
    return f"{part.kind}({', '.join(told)})"


def _start(start: str, out: Path) -> "StartFiller":
    """The filler of the seam `start`: a folder in diffusers' format, or a finished run of ours."""
    from fulcrum.training.fillers import START_PARTS, DiffusersStart, Trunk
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run

    if start.startswith("hub:") or any((Path(start) / part / "config.json").is_file() for part in ("", *START_PARTS)):
        return DiffusersStart(path=start)
    if "/" in start and not at_home(start).exists():
        raise BadInput(f"--start {start}: there is nothing at {at_home(start).absolute()}", STARTS)
    try:
        trunk = RunFolder(find_run(start, out))
    except BadInput as error:
        raise BadInput(f"--start {start}: {error.message}", f"{STARTS}\n  {error.hint}") from None
    result = trunk.result()
    if result is None:
        raise BadInput(f"the run {trunk.path.name} is not finished", finish_first(trunk, out))
    return Trunk(run=trunk.path.name, weights_sha256=result["weights_sha256"])


def _time(result: dict[str, Any]) -> str:
    """Of training, at the speed that the progress told; a result of an older version does not tell the rest apart."""
    more = result.get("preparing_seconds", 0.0)
    return f"{result['seconds']:.0f} s, {result['images_per_second']:,.1f} images/s" + (
        f"; besides {more:.0f} s of encoding and compiling" if more >= 1 else ""
    )


def _skipped(result: dict[str, Any], run: "RunSpec") -> str:
    """What went wrong: steps that were left out, and what sentinels saw; a result of an older version tells less."""
    skipped, steps = result.get("skipped") or 0, -(-result["images"] // run.budget.batch)
    backs, alarms = result.get("rolled_back") or (), result.get("alarms") or {}
    lines = [f"  skipped  {skipped:,} of {steps:,} steps, which were not finite or went wrong"] if skipped else []
    lines += [f"  alarms   {', '.join(f'{name} ({count})' for name, count in alarms.items())}"] if alarms else []
    lines += [f"  rolled   back {len(backs)} time{'s' * (len(backs) > 1)}"] if backs else []
    lines += [f"  warning  {result['nothing_learned']}"] if result.get("nothing_learned") else []
    return "".join(f"\n{line}" for line in lines)


def _cost(folder: Any, run: Any, cache: Path, price: float | None) -> tuple[dict[str, Any], str]:
    """The bill as data and as words. The run is trained by now: a part that cannot be counted is no reason to fail."""
    from fulcrum.training.cost_record import bill, in_words

    try:
        cost = bill(folder, run, cache, price)
        return cost, in_words(cost)
    except BadInput:
        raise
    except Exception as error:
        return {}, f"not counted: {type(error).__name__}: {error}"
