"""fulcrum encode: fill the cache of latents, texts and teacher tokens before training, with many
processes if asked."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fulcrum.cli.options import (
    OUT,
    DeviceName,
    Files,
    Images,
    Json,
    Out,
    Quiet,
    Set,
    emit,
    part_of,
    say,
)

Processes = Annotated[
    int, typer.Option(min=1, max=256, help="Share the work among this many processes.")
]
Part = Annotated[
    str | None,
    typer.Option(
        metavar="K/N",
        help=(
            "Make only every N-th chunk from the K-th on: for N machines that share --out, K from"
            " 0. The command without it finishes."
        ),
    ),
]


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: fulcrum encode "pocket + repa" --processes 2')(encode)


def encode(
    phrase: Annotated[
        str, typer.Argument(help="The run whose pictures and captions are to be encoded.")
    ],
    processes: Processes = 1,
    out: Out = OUT,
    settings: Set = None,
    images: Images = None,
    levers: Files = None,
    device: DeviceName = "cpu",
    part: Part = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Encode everything that a run reads, once: latents, texts, teacher tokens. Training would do
    the same by itself.

    Entries are named by the hash of pictures, captions, network and type: a stale one cannot be
    read. A killed command goes on where it stood; what is read is verified when it is first read.
    What much of it will weigh is told first.
    """
    import torch

    from fulcrum.levers.catalog import read_phrase
    from fulcrum.training.dist.choose_system import device_named, thread_count
    from fulcrum.training.estimate import tell_cache
    from fulcrum.training.feed import Feed

    torch.set_num_threads(thread_count(None))
    where = device_named(device)
    number, of = part_of(part) if part else (0, processes)
    if where == "cuda":
        # each process has its own, while there are some
        torch.cuda.set_device(number % torch.cuda.device_count())
    run = read_phrase(phrase, levers or (), settings or (), images)[0].run
    begun = time.monotonic()
    children = [] if part else _children(processes, phrase, out, settings, images, levers, device)
    try:
        feed = Feed(run, 0, out / "cache", None if quiet or part else say, where)
        feed.encode_abreast(torch.get_num_threads())
        tell_cache(feed)
        jobs = feed.jobs()
        for job in jobs if part or of > 1 else ():
            feed.cache.share(job, number, of, None if quiet else say)
        if part:
            return
        for child in children:
            if child.wait():
                say(f"a process ended with code {child.returncode}; its chunks are made here")
        entries = [_entry(feed, job, None if quiet or of > 1 else say) for job in jobs]
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()  # its finished chunks are kept
    seconds = time.monotonic() - begun
    cards = {
        name: network.card
        for name, network in feed.networks.items()
        if getattr(network, "card", None)
    }
    lines = [
        f"{entry['what']:<15} {entry['samples']:>9,} samples  {entry['bytes'] / 1e6:10.1f} MB"
        for entry in entries
    ]
    emit(
        {
            "entries": entries,
            "seconds": round(seconds, 2),
            "cache": str(out / "cache"),
            "cards": cards,
        },
        as_json,
        "\n".join(lines) + f"\nin {out / 'cache'}, {seconds:.0f} s",
    )


def _entry(feed: Any, job: Any, tell: Any) -> dict[str, Any]:
    arrays = feed.cache.finished(job, tell)
    return {
        "what": job.what,
        "samples": job.count,
        "bytes": int(sum(array.nbytes for array in arrays.values())),
    }


def _children(
    processes: int,
    phrase: str,
    out: Path,
    settings: list[str] | None,
    images: int | None,
    levers: list[Path] | None,
    device: str,
) -> "list[subprocess.Popen[bytes]]":
    """The other processes: this very command with a part of the work each; this process is the
    first."""
    words = [
        sys.executable,
        "-m",
        "fulcrum",
        "encode",
        phrase,
        "--out",
        str(out),
        "--device",
        device,
        "--quiet",
    ]
    words += [word for setting in settings or [] for word in ("--set", setting)]
    words += [word for path in levers or [] for word in ("--levers", str(path))]
    words += ["--images", str(images)] if images is not None else []
    from fulcrum.spec.run import cores

    threads = str(max(1, cores() // processes))
    environment = {"OMP_NUM_THREADS": threads, **os.environ}
    return [
        subprocess.Popen(
            [*words, "--part", f"{number}/{processes}"], env=environment, stdout=subprocess.DEVNULL
        )
        for number in range(1, processes)
    ]
