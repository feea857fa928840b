"""fulcrum caption: an imported data set captioned anew by a vision-language model, or by the
world's own captioner."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import DeviceName, Json, Quiet, emit, heard, part_of
from fulcrum.cli.train import train_command

Part = Annotated[
    str,
    typer.Option(
        metavar="K/N",
        help=(
            "Ask only about every N-th block from the K-th on: several machines on one folder. The"
            " command without it finishes."
        ),
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: fulcrum caption my_data my_captions --model world --keep-all")(
        caption
    )


def caption(
    store: Annotated[Path, typer.Argument(help="An imported data set.")],
    to: Annotated[
        Path,
        typer.Argument(
            metavar="DEST", help="New folder: the data set with the new captions beside the old."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help=(
                "A folder or hub:org/name of an image-text-to-text model; world: the embedded"
                " captioner."
            )
        ),
    ],
    styles: Annotated[
        str, typer.Option(help="Of long, medium, short, tags; one caption each.")
    ] = "long,medium,short,tags",
    name: Annotated[
        str, typer.Option(help="The new captions are called NAME_long, NAME_short, ...")
    ] = "recap",
    prompt: Annotated[
        list[str] | None,
        typer.Option(metavar="STYLE=FILE", help="Ask with the text of a file. Repeatable."),
    ] = None,
    language: Annotated[
        str, typer.Option(help="Quarantine captions in another language: en.")
    ] = "",
    least_words: Annotated[
        int | None, typer.Option(min=1, help="Else by style.", show_default=False)
    ] = None,
    most_words: Annotated[
        int | None, typer.Option(min=1, help="Else by style.", show_default=False)
    ] = None,
    most_repeated: Annotated[
        float, typer.Option(help="Share of three-word runs that came before in a caption.")
    ] = 0.3,
    score: Annotated[
        str, typer.Option(help="Score captions with their pictures: world, or clip=FOLDER.")
    ] = "",
    least_score: Annotated[
        float | None, typer.Option(help="Quarantine captions that score less.", show_default=False)
    ] = None,
    keep_all: Annotated[
        bool,
        typer.Option(
            "--keep-all",
            help="Keep pictures whose caption was quarantined, without it; else they are left out.",
        ),
    ] = False,
    temperature: Annotated[float, typer.Option(min=0.0, help="0: the likeliest words.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=0, help="Of an answer; 0: by style.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn at a temperature.")] = 0,
    dtype: Annotated[
        str, typer.Option(help="Of the model: float32, bfloat16, float16.")
    ] = "float32",
    batch: Annotated[
        int, typer.Option(min=1, help="Pictures that are asked about at a time.")
    ] = 64,
    block: Annotated[
        int, typer.Option(min=1, help="Pictures of a block: what a killed command loses at most.")
    ] = 1024,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many pictures.", show_default=False)
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, max=256, help="Share the work among this many processes.")
    ] = 1,
    part: Part = "",
    ray: Annotated[
        bool,
        typer.Option(
            "--ray", help="Processes on Ray workers; DEST on a folder that all nodes see."
        ),
    ] = False,
    ray_address: Annotated[
        str, typer.Option(help="A cluster that is there; else RAY_ADDRESS, or one is started.")
    ] = "",
    device: DeviceName = "cpu",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write new captions for every picture, check them, and write a data set that has them as named
    columns.

    Nothing is overwritten: the old captions stay under their names, and the new ones say who wrote
    them, when, and what was asked. Killed, the same command goes on. Then: --set
    "data.caption=named_captions(names=('recap_long',))"
    """
    from fulcrum.data.caption_quality import CaptionRules
    from fulcrum.measure.store_scores import open_scorer
    from fulcrum.networks.captioning.captioners import Settings, chosen_prompts
    from fulcrum.networks.captioning.recaption import (
        Recaption,
        Wish,
        ask_on_ray,
        ask_with_processes,
    )

    wish = Wish(
        store,
        to,
        model,
        name,
        tuple(chosen_prompts(styles, prompt or ()).values()),
        settings=Settings(max_tokens, temperature, seed, dtype),
        scorer=score,
        least_score=least_score,
        rules=CaptionRules(least_words, most_words, most_repeated, language),
        keep_all=keep_all,
        batch=batch,
        block=block,
        limit=limit,
        device=_device(device),
    )
    go = Recaption(wish, heard(quiet), open_scorer)
    if part and go.done is None:
        go.ask(*part_of(part))
        left = len(go.blocks.missing())
        emit(
            {"left": left},
            as_json,
            f"{left:,} of {len(go.blocks):,} blocks are left" if left else "all blocks are there",
        )
        return
    done = go.finished(
        lambda: ask_on_ray(go, processes, ray_address) if ray else ask_with_processes(go, processes)
    )
    facts, lines = _summary(to, wish, done)
    emit(facts, as_json, "\n".join(lines))


def _summary(to: Path, wish: Any, done: Any) -> tuple[dict[str, Any], list[str]]:
    """Facts for scripts, lines for people."""
    from fulcrum.data.caption_quality import statistics_lines
    from fulcrum.data.stores.importing import ledger_lines
    from fulcrum.data.stores.picture_store import LEDGER
    from fulcrum.files.sealed import read_json
    from fulcrum.networks.captioning.captioners import WORLD

    about, new = done.about, list(wish.columns().values())
    warning = _foreign(to) if WORLD in (wish.model, wish.scorer) else ""
    ledger, statistics = read_json(to / LEDGER, ""), about["caption_statistics"]
    lines = [
        *ledger_lines(ledger)[:1],
        *statistics_lines({**statistics["before"], **statistics["after"]}, new),
    ]
    lines += [
        f"  {count:>8,}  answers quarantined, {reason}"
        for reason, count in about["quarantined_answers"].items()
    ]
    lines += [warning] if warning else []
    if done.busy is not None:
        lines.append(f"the network was busy {done.busy:.0%} of the time")
    whole = tuple(name for name in new if about["captions"].get(name, 0) == about["count"])
    if not whole:
        lines.append("no new column is whole: every picture needs its caption")
    elif not (warning and wish.model == WORLD):  # a network would learn words for what is not there
        lines += train_command(to, names=whole[:1])
    facts = {
        "folder": str(to),
        "busy": done.busy,
        "ledger": ledger,
        "columns": new,
        "warning": warning,
    }
    facts |= {
        name: about[name]
        for name in ("count", "content", "parent", "caption_statistics", "quarantined_answers")
    }
    return facts, lines


def _foreign(to: Path) -> str:
    from fulcrum.data.stores.picture_store import PictureStore
    from fulcrum.networks.captioning.recaption import foreign_store

    return foreign_store(PictureStore(to, verify=False))


def _device(name: str) -> str:
    from fulcrum.training.dist.choose_system import device_named

    return str(device_named(name))
