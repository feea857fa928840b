"""fulcrum measure: measure a trained run, or two sets of pictures."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fulcrum.cli.options import (
    OUT,
    DeviceName,
    Files,
    Json,
    Out,
    Quiet,
    Threads,
    catalogue,
    emit,
    note_unfinished,
    say,
)
from fulcrum.spec.errors import BadInput, FulcrumError, shown
from fulcrum.spec.progress import Tally, awaited

if TYPE_CHECKING:
    from fulcrum.judge.card import Measured, MetricCard
    from fulcrum.measure.evaluate import Comparison
    from fulcrum.measure.folders import MeasuredSets
    from fulcrum.spec.run import Device


# --------------------------------------------------------------------------------------------------
# What was measured, for scripts and for people: values with their intervals, and their cards in
# short.


def plain(measured: "dict[str, Measured]") -> dict[str, Any]:
    """The contract for scripts: a value, its interval and its card under each metric's name."""
    return {
        name: {
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "interval": [one.low, one.high],
            "card": one.card.model_dump(),
        }
        for name, one in measured.items()
    }


def table(measured: "dict[str, Measured]", labels: dict[str, str]) -> list[str]:
    """The values, then what their cards say in short: one line for all that were measured alike."""
    width = max([20, *map(len, measured)])
    alike: dict[str, list[str]] = {}
    for name, one in measured.items():
        alike.setdefault(_short(one.card), []).append(name)
    return [
        f"  {'metric':<{width}} {'value':>10}  [95 % interval]",
        *(
            f"  {name:<{width}} {_digits(one.value):>10}  [{_digits(one.low)}, {_digits(one.high)}]"
            f"  {one.card.better} is better"
            + (f"  ({labels[name]})" if name in labels else "")
            + _ends(one.card)
            for name, one in measured.items()
        ),
        *(
            f"  mind: {name}: {one.card.caution}"
            for name, one in measured.items()
            if one.card.caution
        ),
        "cards in short, whole with --json",
        *(f"  {', '.join(names)}: {card}" for card, names in alike.items()),
    ]


def _ends(card: "MetricCard") -> str:
    """Where a scale begins and ends: the best of the pictures that show nothing of what was asked
    for, and real ones."""
    if not card.floors or card.ceiling is None:
        return ""
    name, floor = (max if card.better == "higher" else min)(
        card.floors.items(), key=lambda entry: entry[1]
    )
    return f"  ({name} {_digits(floor)}, real pictures {_digits(card.ceiling)})"


def _short(card: "MetricCard") -> str:
    """Hashes by their beginnings."""
    parts = [f"N = {card.n:,}"]
    parts += [
        f"{what} {value[:12]}"
        for what in ("extractor", "reference", "prompts")
        if (value := getattr(card, what))
    ]
    if card.sampler:
        parts.append(f"sampler {card.sampler}, {card.steps} steps, guidance {card.guidance}")
    return ", ".join(parts)


def _digits(value: float) -> str:
    return f"{value:.4f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def about(what: str, seen: Any) -> str:
    parts = [f"{count} {note}" for note, count in (*seen.notes.items(), *seen.ignored.items())]
    if seen.skipped:
        parts.append(
            f"{len(seen.skipped)} skipped, the first {seen.skipped[0][0]}: {seen.skipped[0][1]}"
        )
    return f"{what}: {seen.name}, N = {seen.n:,}" + (f" ({'; '.join(parts)})" if parts else "")


# --------------------------------------------------------------------------------------------------
# fulcrum measure: a trained run, two sets of pictures, or the metrics themselves.


What = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN | PICTURES]",
        help=(
            "A run (its folder, its key, or the beginning of its key), or pictures: a folder, tar"
            " shards, an .npz."
        ),
    ),
]
Against = Annotated[
    str | None, typer.Argument(metavar="[REFERENCE]", help="Pictures to hold them against.")
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="NAME[=WHERE]",
        help=(
            "embedded (default), inception=FILE, clip=FOLDER, dino=FOLDER, lite0, vgg, or one of"
            " your own. Repeatable."
        ),
    ),
]
Own = Annotated[
    list[Path] | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help=(
            "A Python file with your own metrics or extractors, which is executed: see"
            " docs/write-a-metric.md."
        ),
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="METRIC", help="Only these metrics. Repeatable."),
]


class ProbeFailed(FulcrumError):
    """A metric did not do what it declares."""


def register(parent: typer.Typer) -> None:
    parent.command(epilog="Example: fulcrum measure RUN --samples 1024")(measure)


def measure(
    what: What = None,
    against: Against = None,
    samples: Annotated[
        int,
        typer.Option(
            min=64,
            max=1_000_000,
            help=(
                "Pictures to draw and measure (RUN), or to probe with (at least 512 with --probe)."
            ),
        ),
    ] = 512,
    features: Features = None,
    metrics: Own = None,
    only: Only = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help=(
                "Put known faults through every metric; exit code 1 when one does not react as it"
                " declares."
            ),
        ),
    ] = False,
    curve: Annotated[
        bool, typer.Option("--curve", help="Also each metric at N/8, N/4 and N/2.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad pictures out; they are named.")
    ] = False,
    any_size: Annotated[
        bool,
        typer.Option("--any-size", help="Pictures of unlike sizes: each is resized on its own."),
    ] = False,
    background: Annotated[
        str | None, typer.Option(help="What shows through transparency: white, black, r,g,b.")
    ] = None,
    value_range: Annotated[
        str | None,
        typer.Option("--range", metavar="LOW,HIGH", help="Of float pictures in npz: 0,1 or -1,1."),
    ] = None,
    out: Out = OUT,
    levers: Files = None,
    device: DeviceName = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure a trained run, or any two sets of pictures; every number carries its card and its
    interval.

    fulcrum measure RUN                  draws held-out prompts and measures the pictures
                                         (--features lite0: by it too)

    fulcrum measure PICTURES REFERENCE   two folders, tar shards or npz; started again after a stop
                                         it goes on

    fulcrum measure --probe              which metric sees which fault
    """
    if what is None and not probe:
        raise BadInput("nothing to measure", "give a run, or pictures and a reference, or --probe")
    if "" in (what, against):  # a shell's unset variable must not become this folder
        raise BadInput(
            "an empty name was given for what to measure", "is a variable of the shell not set?"
        )
    import torch

    from fulcrum.training.dist.choose_system import device_named, thread_count

    torch.set_num_threads(thread_count(threads))
    where = device_named(device)
    if what is not None and against is None:
        if probe:
            raise BadInput(
                "--probe needs no pictures, or both pictures and a reference",
                "write: fulcrum measure --probe, or fulcrum measure PICTURES REFERENCE --probe",
            )
        from fulcrum.measure.evaluation import judges_among

        judges = judges_among(
            [*(features or ()), *(["--metrics or --only"] if metrics or only else ())]
        )
        return _run(what, samples, out, levers, quiet, as_json, judges, where)
    from fulcrum.measure.pictures import read_colour
    from fulcrum.measure.user_metrics import choose_comparisons

    comparisons = choose_comparisons(features or (), metrics or (), only or (), where)
    span, colour = _span(value_range), read_colour(background) if background else None
    sets = _sets([Path(what), Path(against)], span, colour) if what and against else []
    if probe:
        return _probe(sets, comparisons, samples, out, quiet, as_json, skip_bad)
    _compare(
        sets, comparisons, out / "cache" / "features", quiet, as_json, curve, skip_bad, any_size
    )


def _sets(
    paths: list[Path], span: tuple[float, float] | None, colour: tuple[int, int, int] | None
) -> list[Any]:
    """The pictures at each path. A range is that of floats: bytes beside them have their own."""
    from fulcrum.measure.pictures import PictureSet, holds_floats

    floats = [holds_floats(path) for path in paths]
    if span is not None and not any(floats):
        raise BadInput(
            "a range was declared, and no set holds floating point pictures", "leave --range out"
        )
    return [
        PictureSet(path, span if mine else None, colour)
        for path, mine in zip(paths, floats, strict=True)
    ]


def _compare(
    sets: list[Any],
    comparisons: "Sequence[Comparison]",
    cache: Path,
    quiet: bool,
    as_json: bool,
    curve: bool,
    skip_bad: bool,
    any_size: bool,
) -> None:
    from fulcrum.measure.folders import LABELS, Policy, measure_sets

    progress = (
        None
        if quiet
        else lambda pictures: Tally(f"{pictures.path}:", len(pictures), say, "pictures").tell
    )
    policy = Policy(skip_bad, any_size)
    measured = measure_sets(
        sets[0], sets[1], comparisons, cache, policy, curve, progress, None if quiet else _line
    )
    if not quiet:
        _line("")
    pictures, reference, metrics = measured
    curves = _curves(measured, comparisons) if curve else {}
    labels = {f"{part}.{metric}": text for (part, metric), text in LABELS.items()}
    lines = [about("pictures", pictures), about("reference", reference), *table(metrics, labels)]
    for name, points in curves.items():
        lines.append(
            f"  {name}: " + ", ".join(f"{point['value']:.4g} at {point['n']}" for point in points)
        )
    emit(
        {
            "pictures": pictures.about(),
            "reference": reference.about(),
            "metrics": plain(metrics),
            "extractors": [part.card() for part, _ in comparisons],
            **({"curves": curves} if curve else {}),
        },
        as_json,
        "\n".join(lines),
    )


def _curves(
    measured: "MeasuredSets", comparisons: "Sequence[Comparison]"
) -> dict[str, list[dict[str, float]]]:
    from fulcrum.measure.evaluate import curve
    from fulcrum.measure.features.extractor import full_name
    from fulcrum.measure.features.kept import Rows

    pictures, reference = measured.pictures.features, measured.reference.features
    return {
        full_name(part, metric.name): [
            point._asdict()
            for point in curve(
                metric, pictures.gathered[part.name][Rows], reference.of(part.name, metric)
            )
        ]
        for part, metrics in comparisons
        for metric in metrics
    }


def _probe(
    sets: list[Any],
    comparisons: "Sequence[Comparison]",
    samples: int,
    out: Path,
    quiet: bool,
    as_json: bool,
    skip_bad: bool,
) -> None:
    from fulcrum.files.atomic import write_atomic
    from fulcrum.measure.probe import embedded_world, probe

    if sets:
        pictures, reference = (_batches(one, samples, skip_bad) for one in sets)
        source, shares = f"{sets[0].path} against {sets[1].path}", None
    else:
        pictures, reference, shares = embedded_world(samples)
        source = "the embedded world"
    tell = None if quiet else say
    pictures, reference = (
        _told(pictures, Tally("faults put into", samples, tell, "pictures")),
        _told(reference, Tally("looked at", samples, tell, "pictures of the reference")),
    )
    with awaited("every fault is put into the pictures, then every metric is asked", tell):
        table = probe(pictures, reference, comparisons, source, shares, None if quiet else _line)
    if not quiet:
        _line("")
    kept = out / "cache" / "probes.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(kept, table.model_dump_json(indent=1))
    wrong = [
        f"{cell.metric} declares '{cell.declared}' for {cell.probe}, found '{cell.found}' "
        f"({cell.value:.4g} [{cell.low:.4g}, {cell.high:.4g}])"
        for cell in table.mismatches
    ]
    result = {
        **json.loads(table.model_dump_json()),
        "as_declared": not wrong,
        "mismatches": wrong,
        "file": str(kept),
    }
    if as_json and wrong:
        print(json.dumps(result))
        sys.exit(1)
    emit(result, as_json, "\n".join(table.lines()))
    if wrong:
        raise ProbeFailed(
            "a metric does not do what it declares: " + "; ".join(wrong),
            "a wrong declaration, or a metric that is not what it says: mend one of them",
        )


def _told(batches: Iterable[Any], tally: Tally) -> Iterator[Any]:
    """The same batches; the tally hears how many pictures were worked on before the next is asked
    for."""
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        tally.tell(done)


def _batches(pictures: Any, samples: int, skip_bad: bool) -> Iterator[Any]:
    """The first `samples` pictures in batches of one size."""
    import torch

    from fulcrum.measure.features.extractor import BATCH
    from fulcrum.measure.pictures import BadPicture

    waiting: dict[tuple[int, ...], list[Any]] = {}
    taken = 0
    for stored in pictures:
        if taken == samples:
            break
        try:
            pixels = torch.from_numpy(pictures.decode(stored).pixels)
        except BadPicture as error:
            if not skip_bad:
                raise error.named(stored.name) from None
            say(f"skipped {stored.name}: {error.why}")
            continue
        taken += 1
        same = waiting.setdefault(tuple(pixels.shape), [])
        same.append(pixels)
        if len(same) == BATCH:
            yield torch.stack(waiting.pop(tuple(pixels.shape)))
    yield from (torch.stack(same) for same in waiting.values())


def _run(
    run: str,
    samples: int,
    out: Path,
    levers: list[Path] | None,
    quiet: bool,
    as_json: bool,
    judges: tuple[str, ...],
    device: "Device",
) -> None:
    from fulcrum.measure.evaluation import keep_metrics, measure_run
    from fulcrum.spec.edit import read
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run

    folder = RunFolder(find_run(run, out))
    note_unfinished(folder)
    spec = read(folder.about()["run"], catalogue(levers)[0].fillers)
    drawn = Tally("drawn", samples, None if quiet else say, "pictures").tell
    with awaited(
        "drawing; then they are judged, and the held-out loss is taken", None if quiet else say
    ):
        measured = measure_run(folder, spec, samples, out / "cache", judges, device, say, drawn)
    keep_metrics(folder, plain(measured))
    emit(
        {"run": str(folder.path), "metrics": plain(measured)},
        as_json,
        "\n".join(table(measured, {})),
    )


def _span(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
        if not -1e9 < low < high < 1e9:
            raise ValueError
    except ValueError:
        raise BadInput(f"'{text}' is not a range", "write --range 0,1 or --range=-1,1") from None
    return low, high


def _line(text: str) -> None:
    """What is being computed, on a screen only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{shown(text)}", end="", file=sys.stderr, flush=True)
