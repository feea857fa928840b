"""Where the time of one training step goes, by part, and how it compares with the step's own matrix
products.

    python bench/step_profile.py                    spark and pocket, on one thread and on two;
                                                    about six minutes
    python bench/step_profile.py --recipes spark --threads 1

Each case runs in a process of its own, with the parts that training uses: a built run, its feed,
its optimizer. Feed, forward and backward, clip and optimizer are timed without a profiler. What is
inside forward and backward comes from a second round under torch's profiler, as shares of that
round: it makes calls look a little dearer than they are. (Not called profile.py: Python's own
module of that name would be hidden from every bench.) With one thread, the time is the processor's,
which leaves out what other programs took.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PICTURES = 1024  # of the world: as many captions as a step can tell apart, encoded in seconds
PROFILED = 20  # steps under the profiler
# inside forward and backward, by the names of the profiler's events; the first that fits counts
PARTS = {
    "attention": ("scaled_dot_product", "aten::bmm"),
    "products": ("aten::mm", "aten::addmm", "mkl", "aoti_torch_cpu_mm", "aoti_torch_cpu_addmm"),
    "graph calls and guards": (
        "TorchDynamo",
        "Torch-Compiled",
        "CompiledF",
        "## Call",
        "AOTDispatcher",
        "Pregraph",
    ),
    "elementwise": ("",),  # compiled kernels, and what is left to torch's own operators
}
# C++ calls their kernels, unseen
OF_LANES = {"compiled graphs": PARTS["graph calls and guards"], "elementwise": ("",)}
# events that only hold others; lanes wait inside the last
NOT_WORK = ("autograd::engine", "ProfilerStep", "_Passes")
WAITING = "Python and waiting"


def profile(recipe: str, threads: int, rounds: int, pipe: Connection) -> None:
    """One case, in its own process."""
    import torch
    import torch._inductor.config as inductor
    from products import products

    from fulcrum.training.loop import clip_gradients

    torch.set_num_threads(threads)
    # kernels have names under the profiler; costs nothing without one
    inductor.cpp.enable_kernel_profile = True
    with tempfile.TemporaryDirectory() as cache:
        built = assembled(recipe, threads, Path(cache))
        rows, step, feed, apart = (
            built.run.budget.batch,
            built.step,
            built.feed,
            built.step.clipped_apart(),
        )
        now: Callable[[], float] = time.process_time if threads == 1 else time.perf_counter
        taken: dict[str, list[float]] = {
            name: [] for name in ("feed", "forward", "backward", "clip", "optimizer", "step")
        }

        def take(number: int) -> None:
            times = [now()]
            batch, draw = feed.at(rows * number)
            times.append(now())
            losses = step(batch, draw, built.weights(0))
            times.append(now())
            losses.total.backward()
            times.append(now())
            bool(torch.isfinite(clip_gradients(apart, built.run.optim.clip)))
            times.append(now())
            built.optimizer.step(0.1)
            built.optimizer.zero_grad()
            times.append(now())
            for name, start, end in zip(taken, times, times[1:], strict=False):
                taken[name].append(end - start)
            taken["step"].append(times[-1] - times[0])

        begun = time.perf_counter()
        take(0)
        first = time.perf_counter() - begun
        take(1)
        taken = {name: [] for name in taken}
        for number in range(rounds):
            take(2 + number)

        pairs = [feed.at(rows * number) for number in range(PROFILED)]

        def gradients() -> None:
            for batch, draw in pairs:
                step(batch, draw, built.weights(0)).total.backward()
            step.zero_grad()

        shares = shares_of(gradients, threads)
        lanes, step.denoise.lanes = step.denoise.lanes, 1
        seconds, rate = products(lambda: step(*pairs[0], built.weights(0)).total.backward())
        step.denoise.lanes = lanes
        medians = {name: statistics.median(values) for name, values in taken.items()}
        inside = medians.pop("forward") + medians.pop("backward")
        whole = medians.pop("step")
        parts = {name: inside * share for name, share in shares.items()} | medians
        pipe.send(
            {
                "recipe": recipe,
                "threads": threads,
                "seconds": whole,
                "images_per_second": rows / whole,
                "first_step": first,
                "parts": parts,
                "products_alone": seconds,
                "over_own_products": whole / seconds,
                "peak_gflops": rate / 1e9,
            }
        )


def assembled(recipe: str, threads: int, cache: Path) -> Any:
    """The run that a study's cell of this recipe is, with fewer pictures."""
    from fulcrum.levers.recipes import pocket, spark
    from fulcrum.spec.edit import put
    from fulcrum.spec.run import System
    from fulcrum.training.build import assemble
    from fulcrum.training.feed import Feed

    run = {"spark": spark, "pocket": pocket}[recipe]()
    run = put(run, "data.source", run.data.source.model_copy(update={"count": PICTURES}))
    return assemble(run, 0, System(threads=threads, compile=True), Feed(run, 0, cache))


def shares_of(work: Callable[[], None], threads: int) -> dict[str, float]:
    """The share of every part in the time of all threads; what no event covers is Python and
    waiting."""
    import torch
    from torch.profiler import ProfilerActivity

    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], experimental_config=everywhere
    ) as profiler:
        begun = time.perf_counter()
        work()
        whole = (time.perf_counter() - begun) * threads
    parts = PARTS if threads == 1 else OF_LANES
    spent = dict.fromkeys(parts, 0.0)
    for event in profiler.key_averages():
        if event.key.startswith(NOT_WORK):
            continue
        part = next(
            name for name, names in parts.items() if any(text in event.key for text in names)
        )
        spent[part] += event.self_cpu_time_total / 1e6
    shares = {name: seconds / whole for name, seconds in spent.items()}
    return shares | {WAITING: max(0.0, 1 - sum(shares.values()))}


def show(result: dict[str, Any]) -> None:
    whole = result["seconds"]
    print(
        f"\n{result['recipe']}, {result['threads']} thread(s): {1e3 * whole:.2f} ms a step,"
        f" {result['images_per_second']:.0f} images/s, {result['over_own_products']:.2f} times its"
        f" own products ({1e3 * result['products_alone']:.2f} ms); peak {result['peak_gflops']:.0f}"
        f" GFLOP/s; first step {result['first_step']:.1f} s"
    )
    for name, seconds in sorted(result["parts"].items(), key=lambda item: -item[1]):
        print(f"  {name:24}{1e3 * seconds:8.2f} ms{100 * seconds / whole:6.1f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--recipes", nargs="+", default=["spark", "pocket"], choices=["spark", "pocket"]
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    options = parser.parse_args()
    spawn, results = multiprocessing.get_context("spawn"), []
    for recipe in options.recipes:
        for threads in options.threads:
            os.environ["OMP_NUM_THREADS"] = str(threads)  # read by the case when it starts
            here, there = spawn.Pipe()
            case = spawn.Process(target=profile, args=(recipe, threads, options.rounds, there))
            case.start()
            there.close()
            results.append(here.recv())
            case.join()
            show(results[-1])
    if options.json:
        print(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
