"""What a launcher says of a process: which it is, of how many, and where they meet. Needs no torch."""

from collections.abc import Mapping
from typing import NamedTuple

from fulcrum.spec.errors import BadInput

MOST_RANKS = 1_000_000
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun's own variable: it holds the store, not rank 0
RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # torchrun's own variable: its store may outlive the processes


class Launched(NamedTuple):
    """One process of many."""

    rank: int
    size: int
    local: int  # which of those on this machine
    host: str
    port: int
    agent: bool = False  # torchrun holds the store, not rank 0
    restarts: str = "0"

    @property
    def holds_store(self) -> bool:
        return self.rank == 0 and not self.agent

    @property
    def place(self) -> str:
        """Where all meet."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"


def processes(env: Mapping[str, str]) -> int:
    """How many processes the environment tells of."""
    return _number("WORLD_SIZE", env.get("WORLD_SIZE", "1"), 1, MOST_RANKS)


def launched(env: Mapping[str, str]) -> Launched | None:
    """What the environment says; None: this process is alone."""
    size = processes(env)
    if size == 1:
        return None
    missing = [name for name in TORCHRUN if name not in env]
    if missing:
        raise BadInput(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set",
            "start many processes with torchrun, which sets all of them, or unset WORLD_SIZE",
        )
    rank, local, port = (
        _number(name, env[name], least, most)
        for name, least, most in (("RANK", 0, size - 1), ("LOCAL_RANK", 0, size - 1), ("MASTER_PORT", 1, 65_535))
    )
    return Launched(rank, size, local, env["MASTER_ADDR"], port, env.get(AGENT) == "True", env.get(RESTARTS, "0"))


def _number(name: str, text: str, least: int, most: int) -> int:
    """A number that a launcher gives; what is none, or cannot be, is refused before anybody waits for anybody."""
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= most:
        raise BadInput(
            f"{name} is {text!r}, expected a number from {least} to {most}",
            f"start many processes with torchrun, which sets it, or unset {name}",
        )
    return int(text)
