"""Many processes ask about one store: on this machine, or on Ray workers that see its folder. What one that is lost leaves
undone is done here at the end: blocks are files, and nothing lives in a worker."""

import multiprocessing
import os
from dataclasses import replace
from typing import Any

from fulcrum.caption.recaption import Recaption, Wish
from fulcrum.spec.errors import BadInput, install_extra
from fulcrum.spec.run import cores


def ask_part(wish: Wish, number: int, of: int, threads: int) -> int:
    """In a process of its own: every `of`-th block; returns how many pictures were asked about."""
    import torch

    torch.set_num_threads(threads)
    if wish.device == "cuda":
        torch.cuda.set_device(number % torch.cuda.device_count())  # each has its own, while there are some
    go = Recaption(wish, _silent)
    go.ask(number, of)
    return go.asking.asked if go.asking else 0


def ask_with_processes(go: Recaption, processes: int) -> None:
    """This process and others beside it."""
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, cores() // processes)
    others = [
        context.Process(target=ask_part, args=(go.wish, number, processes, threads), daemon=True)
        for number in range(1, processes)
    ]
    for other in others:
        other.start()
    try:
        go.ask(0, processes)
        for other in others:
            other.join()
            if other.exitcode:
                go.say(f"a process ended with code {other.exitcode}; its blocks are made here")
    finally:
        for other in others:
            if other.is_alive():
                other.terminate()  # its finished blocks are kept
    if go.blocks.missing():
        go.ask()


def ask_on_ray(go: Recaption, processes: int, address: str = "") -> None:
    """Ray workers, each with a part; this process only waits, then makes what is missing."""
    try:
        import ray as found_ray
    except ImportError:
        raise BadInput("Ray is not installed", f"{install_extra('ray')}, or leave --ray out") from None
    ray: Any = found_ray
    address = address or os.environ.get("RAY_ADDRESS", "")
    own: dict[str, Any] = {} if address else {"num_cpus": processes, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(f"cannot join the Ray cluster at {address}: {error}", "start it with: ray start --head") from None
    try:
        wish = replace(go.wish, store=go.wish.store.absolute(), to=go.wish.to.absolute())
        gpus = 1 if wish.device == "cuda" else 0
        task = ray.remote(ask_part).options(num_cpus=1, num_gpus=gpus, max_retries=2)
        parts = [task.remote(wish, number, processes, 1) for number in range(processes)]
        for number, part in enumerate(parts):
            try:
                ray.get(part)
            except Exception as error:  # Ray wraps whatever went wrong over there
                go.say(f"part {number} failed on Ray ({str(error).splitlines()[-1][:200]}); its blocks are made here")
    finally:
        ray.shutdown()
    if go.blocks.missing():
        go.ask()


def _silent(_: str) -> None:
    pass
