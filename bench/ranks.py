"""Two processes against one: how much faster a step gets, and how much less memory a process needs.

    python bench/ranks.py speed [--recipe pocket_pixels_large] [--steps 12] [--rounds 3] [--eager]
    python bench/ranks.py memory [--width 1024] [--depth 8]

speed: one process with one thread, then two by DDP and by FSDP2 (gloo, one thread each), all with
the same global batch, in turns within every round; the ratio is that of the median steps, the
median over the rounds. 1.6 is wanted of both. Beside it stands the ratio of processor seconds, of
the rank that took most: what is computed, without what is waited for. It holds beside other work
too, where the first does not. Compiled, the number of graphs is told: one that grows is a fault.
Each round also trains two processes side by side that share nothing, with half of the batch each:
two cores share their cache and their way to memory, so this, and not 2, is what any way to share
could reach on the machine. memory: what a process takes at most above what it held after its
imports, of at least 150 M parameters, under FSDP2 over that of one process, with the same global
batch; 0.65 is allowed. AdamW, no average, not compiled. Both run the training's own loop on random
starts; nothing is saved. Wants the machine for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WANTED, ALLOWED, LEAST = 1.6, 0.65, 150_000_000


def work(asked: argparse.Namespace) -> None:
    """One rank, started by `launched`: trains some steps and prints what they took."""
    import torch

    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.phrase import parse
    from fulcrum.spec.run import System
    from fulcrum.training.build import assemble
    from fulcrum.training.checkpoint import State
    from fulcrum.training.dist.compiled_code import compiles_here
    from fulcrum.training.dist.ranks import start
    from fulcrum.training.feed import Feed
    from fulcrum.training.loop import after, train

    torch.set_num_threads(1)
    run = parse(asked.recipe, CATALOG, asked.set).run
    if asked.compile and not compiles_here(lambda text: print(text, file=sys.stderr)):
        raise SystemExit("this machine cannot compile: give --eager")
    with start() as ranks:
        system = System(threads=1, compile=asked.compile, mesh=asked.mesh, processes=ranks.size)
        feed = Feed(run, 0, Path(asked.cache))
        with ranks.first_goes_ahead("encoding"):
            feed.at(0)
        # the peak until now was the encoding's: it begins anew
        Path("/proc/self/clear_refs").write_text("5")
        imported = resident("VmRSS")
        built = assemble(run, 0, system, feed, ranks=ranks)
        ends = [(time.perf_counter(), time.process_time())]
        train(
            built,
            State(),
            [lambda look: ends.append((time.perf_counter(), time.process_time()))],
            after(asked.steps),
        )
        steps = list(zip(ends[2:], ends[3:], strict=False))  # without the first two steps
        seconds, cpu = (
            statistics.median(end[clock] - begun[clock] for begun, end in steps) for clock in (0, 1)
        )
        mine = {
            "memory": resident("VmHWM") - imported,
            "seconds": seconds,
            "cpu": cpu,
            "graphs": graphs(),
        }
        every = [json.loads(one) for one in ranks.told("what was measured", json.dumps(mine))]
        if ranks.first:
            numbers = sum(p.numel() for p in built.step.parameters())
            worst = {name: max(one[name] for one in every) for name in mine}
            print(json.dumps(worst | {"parameters": numbers}), flush=True)


def graphs() -> int:
    """How many were compiled by this process; Dynamo is not imported to say none."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else dynamo.counters["stats"]["unique_graphs"]


def resident(field: str) -> int:
    """Bytes that this process holds (VmRSS), or held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def launched(processes: int, words: list[str]) -> dict[str, Any]:
    """What the first rank of so many processes printed."""
    return printed(begun(processes, words))


def begun(processes: int, words: list[str]) -> subprocess.Popen[str]:
    many = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        if processes > 1
        else []
    )
    command = [sys.executable, *many, str(Path(__file__).resolve()), "rank", *words]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=alone, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def printed(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate()
    if process.returncode:
        raise SystemExit(
            f"{' '.join(map(str, process.args))} ended with {process.returncode}:\n{errors[-3000:]}"
        )
    return dict(json.loads(out.strip().splitlines()[-1]))


def apart(words: list[str], recipe: str) -> dict[str, Any]:
    """Two processes side by side that share nothing, with half of the batch each: the slower one's
    numbers."""
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.phrase import parse

    half = ["--set", f"budget.batch={parse(recipe, CATALOG).run.budget.batch // 2}"]
    both = [begun(1, [*words, *half]) for _ in range(2)]
    return max((printed(one) for one in both), key=lambda numbers: float(numbers["seconds"]))


def speed(asked: argparse.Namespace, cache: str) -> None:
    words = ["--recipe", asked.recipe, "--steps", str(asked.steps), "--cache", cache]
    words += [] if asked.eager else ["--compile"]
    times: dict[str, list[float]] = {"ddp": [], "fsdp": []}
    work_done: dict[str, list[float]] = {mesh: [] for mesh in times}
    bounds = list[float]()
    for number in range(asked.rounds):
        alone = launched(1, words)
        print(f"round {number + 1}: one process {step_of(alone)}", flush=True)
        nothing = apart(words, asked.recipe)
        bounds.append(alone["seconds"] / nothing["seconds"])
        print(f"round {number + 1}: two that share nothing {step_of(nothing)}", flush=True)
        for mesh in times:
            two = launched(2, [*words, "--mesh", mesh])
            times[mesh].append(alone["seconds"] / two["seconds"])
            work_done[mesh].append(alone["cpu"] / two["cpu"])
            print(f"round {number + 1}: two by {mesh} {step_of(two)}", flush=True)
    bound = statistics.median(bounds)
    print(
        f"two that share nothing: {bound:.2f} times one process ({min(bounds):.2f} to"
        f" {max(bounds):.2f})"
    )
    for mesh, seen in times.items():
        print(
            f"{mesh}: {statistics.median(seen):.2f} times one process ({min(seen):.2f} to"
            f" {max(seen):.2f}), {statistics.median(work_done[mesh]):.2f} by processor seconds;"
            f" {statistics.median(seen) / bound:.0%} of what those reach that share nothing;"
            f" {WANTED} wanted"
        )
    if any(statistics.median(seen) < WANTED for seen in times.values()):
        raise SystemExit(1)


def step_of(numbers: dict[str, Any]) -> str:
    compiled = f", {numbers['graphs']} graphs" if numbers["graphs"] else ""
    return (
        f"{numbers['seconds'] * 1e3:.0f} ms, {numbers['cpu'] * 1e3:.0f} ms of a processor{compiled}"
    )


def memory(asked: argparse.Namespace, cache: str) -> None:
    sizes = [
        f"model.width={asked.width}",
        f"model.depth={asked.depth}",
        "model.heads=8",
        "budget.batch=8",
    ]
    words = [
        "--recipe",
        "spark",
        "--steps",
        "4",
        "--cache",
        cache,
        *(word for one in sizes for word in ("--set", one)),
    ]
    alone = launched(1, words)
    shared = launched(2, [*words, "--mesh", "fsdp"])
    share, numbers = shared["memory"] / alone["memory"], alone["parameters"]
    print(
        f"{numbers / 1e6:,.0f} M parameters: one process {alone['memory'] / 1e9:.2f} GB above its"
        f" imports, each of two by FSDP2 {shared['memory'] / 1e9:.2f} GB: {share:.2f} of it; at"
        f" most {ALLOWED} is allowed"
    )
    if numbers < LEAST or share > ALLOWED:
        raise SystemExit(1)


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("what", choices=("speed", "memory", "rank"))
    words.add_argument("--recipe", default="pocket_pixels_large")
    words.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    words.add_argument("--steps", type=int, default=12)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--width", type=int, default=1024)
    words.add_argument("--depth", type=int, default=8)
    words.add_argument("--mesh", default="fsdp")
    words.add_argument("--compile", action="store_true", help="of a rank")
    words.add_argument("--eager", action="store_true", help="speed: without compiling")
    words.add_argument(
        "--cache", help="where encoded pictures are kept; a folder that is removed at the end"
    )
    asked = words.parse_args()
    if asked.what == "rank":
        return work(asked)
    with tempfile.TemporaryDirectory() as place:
        {"speed": speed, "memory": memory}[asked.what](asked, asked.cache or place)


if __name__ == "__main__":
    main()
