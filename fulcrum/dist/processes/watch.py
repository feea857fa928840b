"""The watch over the processes of a run: a rank that is dead, stands still or has failed is named, and all end.

The main thread of a rank that waits for another cannot be woken: the watch speaks, and ends the process.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable

from fulcrum.dist.processes.heartbeat import BEAT, LONGEST, SAVING, TRAINING, Heartbeat, Sign
from fulcrum.spec.errors import FulcrumError, RankLost, first_line

SILENT = 20.0  # seconds without a sign after which a rank is lost
QUIET = 6.0  # seconds without a sign that are enough where something else tells of a loss
SLOW = 25.0  # seconds without a step after which the slowest are named; nothing ends by that
FINISH = 4.0  # seconds that a rank which saves has to finish what needs no other
GRACE = 10.0  # seconds that a rank has to find out by itself that another has failed
SAME = 5.0  # seconds in which other ranks that fail in the same way do so
LOOK = 0.5  # seconds between two looks
HELD = 5.0  # seconds between two looks that tell that this process itself was held
NAMED = 4  # ranks that one message names
OWN_ABSENCE = "was it stopped (SIGSTOP, Ctrl-Z), or its machine suspended or overloaded?"
AGAIN = "what was saved stays usable: the same command goes on from there"


class Watch(threading.Thread):
    """Judges the signs of the other ranks. `agent`: torchrun holds the store, not rank 0."""

    def __init__(self, heart: Heartbeat, timeout: float, agent: bool) -> None:
        super().__init__(daemon=True, name="watch")
        self.heart, self.timeout, self.agent = heart, timeout, agent
        self.leaving, self.noticed, self.warned = threading.Event(), -1, False
        self.missed: float | None = None  # since when others are missing
        self.looked = time.monotonic()
        self.held, self.woken = 0.0, 0.0  # seconds that this process was itself held, and when it woke

    def run(self) -> None:
        self.looked = time.monotonic()
        while not self.leaving.wait(LOOK):
            now = time.monotonic()
            self.look(now)
            lost = self.lost(now, SILENT)
            failed = {rank: sign for rank, sign in self.failed().items() if now - self.heart.heard[rank] > GRACE}
            if not lost and not failed:
                self.missed = None
            elif self.busy(now):
                self.warn(lost, failed)
            else:
                self.end(lost, failed)
            self.notice(now)

    def look(self, now: float) -> None:
        """See whether this process was stopped or starved since the last look: what it did not hear then is no silence."""
        gap, self.looked = now - self.looked, now
        if gap > HELD:
            self.held, self.woken = gap, now
            self.heart.heard_all_again()

    def own_absence(self) -> str:
        """That this process was held itself, so long that the others gave it up, and shortly before it missed them."""
        long, lately = self.held > SILENT - 2 * BEAT, time.monotonic() - self.woken < SILENT + GRACE
        if not (long and lately) or self.own_failures(self.failed()):
            return ""
        rank, size = self.heart.rank, self.heart.size
        return f"rank {rank} of {size} was itself held for {self.held:.0f} s, and the others have ended without it"

    def lost(self, now: float, silent: float) -> list[int]:
        """Ranks that give no sign and have not said that they leave; the holder of the store for all, if it is silent."""
        heart = self.heart
        if now - heart.exchanged > (min(silent, GRACE) if heart.closed else silent):
            if not self.agent and heart.rank != 0 and heart.signs[0].ended is None:
                return [0]
            now = heart.exchanged  # the store is gone, and nobody was heard since: that is no silence
        late = [rank for rank, heard in heart.heard.items() if now - heard > silent and rank != heart.rank]
        return [rank for rank in late if heart.signs[rank].ended is None]

    def failed(self) -> dict[int, Sign]:
        return {rank: sign for rank, sign in self.heart.signs.items() if sign.ended and rank != self.heart.rank}

    @staticmethod
    def own_failures(failed: dict[int, Sign]) -> dict[int, Sign]:
        """Without those that only lost another."""
        return {rank: sign for rank, sign in failed.items() if not (sign.ended or "").startswith(RankLost.__name__)}

    def busy(self, now: float) -> bool:
        """May this rank still finish what it is at? All write a checkpoint; only its end needs no other, and is short."""
        self.missed = now if self.missed is None else self.missed
        return self.heart.standing.activity == SAVING and now - self.missed < FINISH

    def words(self, lost: Iterable[int], failed: dict[int, Sign]) -> str:
        """Who is missing, where it was last seen, and what the failed ones said."""
        size, now = self.heart.size, time.monotonic()
        own = self.own_failures(failed)
        parts = [f"rank {rank} of {size} on {sign.host} has failed: {sign.ended}" for rank, sign in own.items()]
        for rank in lost:
            sign, silent = self.heart.signs[rank], now - self.heart.heard[rank]
            seen = f"it was last seen on {sign.host} {sign}" if sign.number else "it was never heard of"
            parts.append(f"rank {rank} of {size} has given no sign of life for {silent:.0f} s; {seen}")
        more = [f"{len(parts) - NAMED} more"] if len(parts) > NAMED else []
        return "; ".join([*parts[:NAMED], *more])

    def speaker(self, missing: Iterable[int]) -> bool:
        """The first rank that is left speaks for all."""
        gone = {*missing, *self.failed()}
        return self.heart.rank == min(rank for rank in range(self.heart.size) if rank not in gone)

    def warn(self, lost: list[int], failed: dict[int, Sign]) -> None:
        """Say once who is missing while this rank finishes what it is at."""
        if not self.warned and self.speaker(lost):
            words = self.words(lost, failed) or "another process of the run has left"
            print(f"{words}; the run ends, if {SAVING} is not done in {FINISH:.0f} s", file=sys.stderr, flush=True)
        self.warned = True

    def end(self, lost: list[int], failed: dict[int, Sign]) -> None:
        lost = lost or self.lost(time.monotonic(), QUIET)
        held = self.own_absence()
        words = held or self.words(lost, failed) or "the processes of the run have left this one behind"
        if held or self.speaker(lost):
            why = OWN_ABSENCE if held else "was it stopped, or killed for memory?"
            print(f"error: {words}\n  {why} {AGAIN}", file=sys.stderr, flush=True)
        if not self.heart.closed and time.monotonic() - self.heart.exchanged < SILENT:
            self.heart.end(f"{RankLost.__name__}: {words}")
        os._exit(RankLost.exit_code)

    def notice(self, now: float) -> None:
        """A step that takes much longer than a rank may be silent: say once who is where. The ranks are alive."""
        standing, signs = self.heart.standing, self.heart.signs
        if standing.activity != TRAINING or standing.step in (0, self.noticed) or now - standing.since < SLOW:
            return
        self.noticed = standing.step
        if not self.speaker(()):
            return
        here = Sign(0, standing.step, standing.activity, place=self.heart.place())
        places = {rank: here if rank == self.heart.rank else sign for rank, sign in signs.items()}
        where = [f"rank {rank} is {sign}" for rank, sign in places.items()]
        more = f"; {len(where) - 2 * NAMED} more" if len(where) > 2 * NAMED else ""
        print(
            f"no step for {now - standing.since:.0f} s, all ranks are alive: {'; '.join(where[: 2 * NAMED])}{more}. "
            f"The run ends when one has waited {self.timeout:.0f} s for another (--timeout)",
            file=sys.stderr,
            flush=True,
        )

    def explained(self, error: BaseException) -> RankLost:
        """In the main thread, which has missed another rank: who it was. A launcher's SIGTERM must not hide it."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process is ending
        self.look(time.monotonic())
        self.leaving.set()
        deadline = time.monotonic() + QUIET + 2.0
        lost: list[int] = []
        while time.monotonic() < deadline:
            if held := self.own_absence():
                raised = RankLost(held, f"{OWN_ABSENCE} {AGAIN} ({first_line(error)})")
                raised.speaker = True
                return raised
            lost = self.lost(time.monotonic(), QUIET)
            if lost or self.own_failures(self.failed()):
                break
            time.sleep(LOOK)
        here, size, signs = self.heart.rank, self.heart.size, self.heart.signs
        alive = [
            f"rank {rank} is alive {signs[rank]}" for rank in range(size) if rank != here and signs[rank].ended is None
        ]
        words = self.words(lost, self.failed()) or "; ".join(alive[:NAMED]) or "all others have left"
        what = error.message if isinstance(error, RankLost) else f"rank {here} of {size} lost another process of the run"
        raised = RankLost(
            f"{what}: {words}",
            f"was it stopped, or killed for memory? {AGAIN} ({first_line(error)})",
        )
        raised.speaker = self.speaker(lost)
        return raised

    def tell(self, error: BaseException | None) -> str:
        """Tell the others how this process ends; in words if it ends by an error that is its own."""
        self.leaving.set()
        well = error is None or getattr(error, "together", False)
        ended = "" if well else f"{type(error).__name__}: {first_line(error)}"
        self.heart.end(ended)
        return ended

    def close(self, error: BaseException | None, patience: float = 4.0) -> None:
        """Leave: tell how. Who holds the store waits until the others have read that, or have left themselves; who fails
        looks whether all others fail in the same way, and if not, it has an error of its own."""
        ended = self.tell(error)
        own = error if isinstance(error, FulcrumError) and ended and not isinstance(error, RankLost) else None
        holds = self.heart.rank == 0 and not self.agent
        signs, deadline = self.heart.signs, time.monotonic() + (patience if holds else SAME if own else 0.0)
        while not self.heart.closed and time.monotonic() < deadline:
            try:
                self.heart.collect()
            except RuntimeError:
                return
            if all(sign.ended is not None for rank, sign in signs.items() if rank != self.heart.rank):
                break
            time.sleep(0.05)
        if own and any(sign.ended != ended[:LONGEST] for rank, sign in signs.items() if rank != self.heart.rank):
            own.rank = self.heart.rank
