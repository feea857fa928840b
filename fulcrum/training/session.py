"""A training session: open the folder, resume, train, save, and say how to continue."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from fulcrum.files.atomic import write_json
from fulcrum.spec.edit import key, read_by
from fulcrum.spec.errors import (
    INTERRUPTED,
    REQUEUE,
    BadInput,
    RankLost,
    RunFailed,
    TrainingFailed,
    first_line,
)
from fulcrum.spec.run import RunSpec, System
from fulcrum.training.average import live_weights
from fulcrum.training.build import Built, Context, assemble, require_witness
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.dist.collectives import (
    code_hash,
    mesh_shape,
    require_agreement,
    require_shared,
    versions,
)
from fulcrum.training.dist.compiled_code import SLOWER, is_compiler_error
from fulcrum.training.dist.machine import MACHINE, machine_facts
from fulcrum.training.dist.ranks import ALONE, SAVING, TRAINING, Ranks, is_loss
from fulcrum.training.dist.shard import bf16_products
from fulcrum.training.estimate import require_memory, tell_cache
from fulcrum.training.feed import Feed
from fulcrum.training.loop import Observer, StepReport, train
from fulcrum.training.observers import (
    ProgressLine,
    Recorder,
    Sentinels,
    disturbances,
    require_not_rolled_back,
)
from fulcrum.training.run_folder import (
    SESSION,
    RunEvents,
    RunFolder,
    claim,
    leave_nothing,
    open_folder,
    tidy,
)
from fulcrum.training.saver import Saver, resume

# --------------------------------------------------------------------------------------------------
# Ctrl-C and SIGTERM while a run trains: the step is finished, all processes agree to stop, the run
# is saved, and left.


# steps after which GPUs ask each other whether a process was told to stop: each waits for the
# others
STOP_EVERY = 8
ECHO = 5.0  # seconds in which a launcher passes the same signal on to us
BEFORE_FIRST = "stopped before the first step: what was saved before is as it was"
AT_ONCE = "told again to stop, and stopped at once: what was saved before is as it was"


class Interrupted(RunFailed):
    """Stopped by Ctrl-C or SIGTERM: after saving, or with words that say what is not saved."""

    exit_code = INTERRUPTED
    together = True

    def by(self, signals: Iterable[int]) -> "Interrupted":
        """A SIGTERM is a machine's word: the exit code says that the same command should be started
        again."""
        self.exit_code = REQUEUE if signal.SIGTERM in signals else self.exit_code
        return self


class ToldAgain(KeyboardInterrupt):
    """What breaks off a step or a save. Its words travel: who saves with others tells them why it
    did not."""


class StopAsked:
    """Listens from `with` on, and until what follows is over.

    Launchers pass the same signal on to a process that has it already: within ECHO seconds of one
    that counted it is the same one, wherever it falls: into the save, into the leaving. After them
    it is another. Then nothing is waited for; and who has left hands it on to whoever listened
    before.
    """

    def __init__(self, ranks: Ranks, go_on: str) -> None:
        self.ranks, self.go_on = ranks, go_on
        self.signals: list[int] = []  # those that counted
        self.last = 0.0  # when the last of them came
        # is there nothing to save, and is it of no use to wait?
        self.idle: Callable[[], bool] = bool
        self.agreed, self.again, self.left = False, False, True
        self.before: dict[int, Any] = {}  # who listened before, by the signal's number
        self.turns, self.stalls = count(), ranks.size > 1 and ranks.device.type != "cpu"

    def __enter__(self) -> "StopAsked":
        self.left = False
        # no other may listen
        if not self.before and threading.current_thread() is threading.main_thread():
            self.before = {
                number: signal.signal(number, self.ask)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.left, self.idle = True, bool  # whoever holds the handler does not hold the run
        # what it broke off may have made another error of it
        if self.again and not isinstance(error, Interrupted):
            stopped = Interrupted(AT_ONCE, self.go_on).by(self.signals)
            stopped.together = False
            raise stopped from error
        if not self.signals or error is None:
            self.give_back()
        if self.signals and error is None:  # it came too late for all to agree
            signal.raise_signal(self.signals[-1])

    def ask(self, number: int, frame: FrameType | None) -> None:
        """A signal has come."""
        now = time.monotonic()
        if self.signals and now - self.last <= ECHO:
            return
        if self.left:
            self.give_back()
            signal.raise_signal(number)
            return
        self.again, self.last = bool(self.signals), now
        self.signals.append(number)
        if self.idle():
            self.again = False
            raise Interrupted(BEFORE_FIRST, self.go_on).by(self.signals)
        if self.again:
            raise ToldAgain(f"it was told again to stop, by {signal.Signals(number).name}")

    def give_back(self) -> None:
        """To whoever listened before."""
        before, self.before = self.before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def agree(self) -> bool:
        """Before each step: is it time to stop? All processes ask at the same steps, and hear the
        same."""
        if self.ranks.size == 1:
            return bool(self.signals)
        if not self.stalls or next(self.turns) % STOP_EVERY == 0:
            self.agreed = self.ranks.any(bool(self.signals))
        return self.agreed

    def leave(self, images: int, budget: int) -> None:
        """After a save at so many images, on all processes: stop, if one of them was asked to."""
        if self.ranks.any(bool(self.signals)):
            terminated = [signal.SIGTERM] if self.ranks.any(signal.SIGTERM in self.signals) else []
            raise Interrupted(
                f"stopped at {images:,} of {budget:,} images; everything is saved", self.go_on
            ).by(terminated)


# --------------------------------------------------------------------------------------------------
# What the processes of a run must have in common before they train: the order, the code, the
# folder, the caches.


OWN = {"threads"}  # of the system: what machines may have their own of


def require_same_order(order: "Order", ranks: Ranks) -> None:
    """One run, one seed, one code, one folder: else the ranks that differ are named, on all ranks,
    and nothing is made."""
    if ranks.size == 1:
        return
    facts = {
        "key": key(order.run, order.seed, order.user_files),
        "seed": order.seed,
        "processes": ranks.size,
        "--most-skipped": order.most_skipped,
        "code of the package": code_hash(),
        **{f"version of {name}": number for name, number in versions().items()},
        **dict(_leaves(order.run.plain())),
        **{f"{name} (read)": digest for name, digest in read_by(order.run).items()},
        **{f"{Path(name).name} (--with)": digest for name, digest in order.user_files.items()},
        **{
            f"system.{name}": value
            for name, value in order.system.model_dump().items()
            if name not in OWN
        },
    }
    require_agreement(ranks, "what to train", facts)
    require_shared(ranks, order.out)


def require_same_caches(feed: Feed, ranks: Ranks) -> None:
    """Encodings that every rank has already must be the same ones: a cache may lie on a machine's
    own disk."""
    if ranks.size == 1:
        return
    jobs = {f"{job.what}, {job.kind} {job.facts}": job for job in feed.jobs()}
    seals = {name: feed.cache.store.seal(job.kind, job.facts) for name, job in jobs.items()}
    here = {name: seal for name, seal in seals.items() if seal is not None}
    everywhere = [
        set(json.loads(names))
        for names in ranks.told("the cached encodings", json.dumps(list(here)))
    ]
    common = set.intersection(*everywhere)
    require_agreement(
        ranks, "cached encodings", {name: seal for name, seal in here.items() if name in common}
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a description with its path."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value:
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}.{number}")
    else:
        yield path, value


# --------------------------------------------------------------------------------------------------
# A training session: open the folder, resume, train, save, and say how to continue.


# share of all steps that may be left out because they were not finite: with more of them it is
# another training
MOST_SKIPPED = 0.05


Observers = Callable[[Built, RunFolder, State], list[Observer]]
"""Those of a run, made when it is built and its state is known."""


class Order(NamedTuple):
    """What a session is asked to do."""

    run: RunSpec
    seed: int
    phrase: str
    out: Path
    system: System
    user_files: Mapping[str, str] = {}
    quiet: bool = False
    label: str = "training"
    command: str = ""  # what a person types to go on
    levers: tuple[Any, ...] = ()  # asked for their witness before the first step
    most_skipped: float = MOST_SKIPPED  # share of the steps; one more ends the training
    trunks: Path | None = None  # where runs lie that others begin from; None: in `out`


class SaveAndLeave(Exception):
    """What an observer raises, on all processes after the same step: the run is saved as it stands,
    and left."""


def perform(
    order: Order,
    say: Callable[[str], None],
    observers: Observers | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Train a run to its end and return its result; a finished one is returned as it is.

    Many processes perform together: the first one writes, prints and holds the folder.
    """
    require_same_order(order, ranks)
    # what cannot be shared or loaded is refused before anything is made
    ranks.rows(order.run.budget.batch)
    mesh_shape(order.system.mesh, ranks.size)
    order = order._replace(system=_used(order, ranks))
    feed = Feed(order.run, order.seed, order.out / "cache", say, order.system.device)
    feed.cache.quiet = order.quiet
    feed.encode_abreast(order.system.threads)
    feed.codec()
    feed.text()
    if problem := order.run.model.learned.problem(order.run):
        raise BadInput(problem, "docs/fine-tune.md")
    order.run.start.require_fit(order.run)
    with ranks.first_goes_ahead("opening the run's folder"):
        folder = open_folder(order.out, order.run, order.seed, order.phrase, order.user_files)
    with claim(folder) if ranks.first else nullcontext():
        if ranks.first:
            tidy(folder)
        finished = folder.result()
        if finished is not None:
            say(f"{folder.path} is finished already; nothing was run")
            return finished
        if not order.quiet:
            first = (
                "; blocks are compiled first, half a minute when they are new"
                if order.system.compile
                else ""
            )
            say(
                f"{order.label}: {order.run.budget.images:,} images; the run is"
                f" {folder.path}{first}"
            )
        try:
            return train_in(order, feed, folder, observers, ranks, say)
        except RunFailed:
            raise
        except (Exception, SystemExit) as error:
            if not order.system.compile or ranks.size > 1 or not is_compiler_error(error):
                if ranks.first:
                    leave_nothing(folder)
                raise
            say(f"compiling the blocks failed ({first_line(error)}): {SLOWER}")
        order = order._replace(system=order.system.model_copy(update={"compile": False}))
        return train_in(order, feed, folder, observers, ranks, say)


def train_in(
    order: Order,
    feed: Feed,
    folder: RunFolder,
    observers: Observers | None,
    ranks: Ranks,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Build the run, resume from its last checkpoint, train, save, and return the result."""
    run, batch, many = order.run, order.run.budget.batch, ranks.size > 1
    feed.compiled = order.system.compile
    if ranks.first:
        tell_cache(feed)
    require_memory(run, order.system, ranks.size)
    context = Context(run, order.seed, order.system, ranks=ranks, runs=order.trunks or order.out)
    built = assemble(run, order.seed, order.system, feed, run.start.build(context), ranks)
    require_witness(order.levers, built)
    require_same_caches(feed, ranks)
    state = resume(built, folder, say)
    require_agreement(ranks, "where to go on", {"images": state.images})
    events = RunEvents(folder.path, say)
    require_not_rolled_back(events, ranks)
    if ranks.first:
        events.resume(state.images)
        facts = {MACHINE: machine_facts(order.system), "system": order.system.model_dump()}
        events.write(SESSION, state.images, facts)
    go_on = (
        f"go on with: {order.command}" if order.command else "start the same command again to go on"
    )
    saver = Saver(built, folder, state)
    sentinels = Sentinels(built, folder, state, events)
    reached: list[State] = []  # after the last step
    with StopAsked(ranks, go_on) as stop:
        # Until a step was made there is nothing to save: a process that is alone, or still
        # prepares, or encodes the first batch, may leave at once. Others may wait for it in the
        # exchange of the first step, and learn of its end there.
        looping = False
        stop.idle = lambda: not reached and (ranks.size == 1 or not looping or feed.encoding)
        watching: list[Observer] = [sentinels]
        recorder = None
        if ranks.first:
            recorder = Recorder(folder.record, state.images)
            for fault in recorder.faults:
                say(fault)
            saver.before_saving = recorder.flush
            progress = ProgressLine(order.label, state.images, order.quiet)
            watching = [recorder, progress, sentinels]

        def after_step(report: StepReport) -> None:
            reached[:] = [report.state]
            if many:
                ranks.standing.at(SAVING, report.state.images // batch)
            if report.state.skipped:
                require_few_skipped(order, report.state)
            for observe in watching:
                observe(report)
            if many:
                ranks.standing.at(TRAINING, report.state.images // batch)

        try:
            watching += observers(built, folder, state) if observers else []
            watching.append(saver)
            if many:
                ranks.standing.at(TRAINING, state.images // batch)
            feed.let_go(state.images)  # observers have asked for what they need
            looping = True
            state = train(built, state, [after_step], stop.agree)
        except SaveAndLeave:
            ranks.standing.at(SAVING)
            saver.keep(built, reached[0])
            stop.leave(reached[0].images, run.budget.images)
            raise
        except (RankLost, RuntimeError) as error:
            saver.leave()
            if stop.signals and not reached and (isinstance(error, RankLost) or is_loss(error)):
                # the others were told to stop too, and have
                raise Interrupted(BEFORE_FIRST, go_on).by(stop.signals) from None
            raise
        except BaseException:
            saver.leave()
            raise
        finally:
            if recorder is not None:
                with suppress(OSError):  # what went wrong before is what a person must see
                    recorder.flush()
        result = {}
        if state.images < run.budget.images:
            ranks.standing.at(SAVING)
            saver.keep(built, state)
        else:
            result = conclude(order, built, folder, state, saver, events)
        stop.leave(state.images, run.budget.images)
    return result


def _used(order: Order, ranks: Ranks) -> System:
    """The system as it is used, for the checkpoints: nothing is left open that makes a difference
    to this run."""
    used: dict[str, Any] = {"processes": ranks.size}
    if order.run.precision.compute == "bf16":
        used["bf16"] = bf16_products(order.system)
    return order.system.model_copy(update=used)


def conclude(
    order: Order, built: Built, folder: RunFolder, state: State, saver: Saver, events: RunEvents
) -> dict[str, Any]:
    """The last checkpoint and the result, in this order: a result stands for a run that can be
    used."""
    require_few_skipped(order, state)
    built.ranks.standing.at(SAVING)
    saver.keep(built, state)
    result = {
        "run": str(folder.path),
        "key": folder.path.name,
        "seed": order.seed,
        "phrase": order.phrase,
        "images": state.images,
        "skipped": state.skipped,
        "weights_sha256": weights_hash(live_weights(built.step, built.average)),
        "seconds": round(state.seconds, 3),
        "preparing_seconds": round(max(state.preparing, 0.0), 3),
        "images_per_second": round(state.images_per_second or 0.0, 2),
        **disturbances(built, folder, events),
    }
    if built.ranks.first:
        write_json(folder.path / "result.json", result)
    return result


def require_few_skipped(order: Order, state: State) -> None:
    """Steps that were left out are counted against all steps of the budget: as soon as they are too
    many, nothing that follows can make them few."""
    steps = -(-order.run.budget.images // order.run.budget.batch)
    if state.skipped > order.most_skipped * steps or state.skipped >= steps:
        raise TrainingFailed(
            f"{state.skipped} of {steps} steps were left out because they were not finite, more"
            f" than {order.most_skipped:.4g} of them: what is left is another training than the one"
            " that was asked for",
            "a term or the data gives NaN: leave optim.not_finite=skip out to see which; or allow"
            " more: --most-skipped",
        )
