"""A training session: open the folder, go on from where it stands, train, save, and say how to go on."""

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from fulcrum.dist.machine.compiled_code import SLOWER, is_compiler_error
from fulcrum.dist.machine.machine_facts import MACHINE, machine_facts
from fulcrum.dist.mesh import mesh_shape
from fulcrum.dist.precision import bf16_products
from fulcrum.dist.processes.agreement import require_agreement
from fulcrum.dist.processes.heartbeat import SAVING, TRAINING
from fulcrum.dist.processes.start import ALONE, Ranks, is_loss
from fulcrum.files.atomic import write_json
from fulcrum.spec.errors import INTERRUPTED, REQUEUE, BadInput, RankLost, RunFailed, TrainingFailed, first_line
from fulcrum.spec.run import RunSpec
from fulcrum.spec.system import System
from fulcrum.train.agreed_order import require_same_caches, require_same_order
from fulcrum.train.build import Built, Context, assemble, require_witness
from fulcrum.train.drawing.sampling_weights import live_weights
from fulcrum.train.feed import Feed
from fulcrum.train.loop import Look, Observer, train
from fulcrum.train.saved.checkpoint import weights_hash
from fulcrum.train.saved.resume import resume
from fulcrum.train.saved.run_events import SESSION, RunEvents
from fulcrum.train.saved.run_folder import RunFolder, claim, leave_nothing, open_folder, tidy
from fulcrum.train.saved.saver import Saver
from fulcrum.train.sized.cache_forecast import tell_cache
from fulcrum.train.sized.memory_check import require_memory
from fulcrum.train.state import State
from fulcrum.train.watched.alarm import RollBack
from fulcrum.train.watched.observers import ProgressLine, Recorder
from fulcrum.train.watched.sentinels import Sentinels, disturbances, roll_back
from fulcrum.train.watched.standpoint import Standpoint

MOST_SKIPPED = 0.05  # of all steps, left out because they were not finite: with more of them it is another training
STOP_EVERY = 8  # steps after which GPUs ask each other whether a process was told to stop: each waits for the others
ECHO = 5.0  # seconds in which a launcher passes the same Ctrl-C on to us
BEFORE_FIRST = "stopped before the first step: what was saved before is as it was"


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
    """What an observer raises, on all processes after the same step: the run is saved as it stands, and left."""


class Interrupted(RunFailed):
    """Stopped by Ctrl-C or SIGTERM after saving."""

    exit_code = INTERRUPTED
    together = True

    def by(self, signals: Iterable[int]) -> "Interrupted":
        """A SIGTERM is a machine's word: the exit code says that the same command should be started again."""
        self.exit_code = REQUEUE if signal.SIGTERM in signals else self.exit_code
        return self


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
    ranks.rows(order.run.budget.batch)  # a batch or a mesh that cannot be shared is refused before anything
    mesh_shape(order.system.mesh, ranks.size)
    order = order._replace(system=_used(order, ranks))
    feed = Feed(order.run, order.seed, order.out / "cache", say, order.system.device)
    feed.cache.quiet = order.quiet
    feed.encode_abreast(order.system.threads)
    for part in (feed.codec, feed.text):  # one that cannot be had is said before anything is made; no name holds it
        part()
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
            first = "; blocks are compiled first, half a minute when they are new" if order.system.compile else ""
            say(f"{order.label}: {order.run.budget.images:,} images; the run is {folder.path}{first}")
        try:
            return _performed(order, feed, folder, observers, ranks, say)
        except RunFailed:
            raise
        except (Exception, SystemExit) as error:
            if not order.system.compile or ranks.size > 1 or not is_compiler_error(error):
                if ranks.first:
                    leave_nothing(folder)
                raise
            say(f"compiling the blocks failed ({first_line(error)}): {SLOWER}")
        order = order._replace(system=order.system.model_copy(update={"compile": False}))
        return _performed(order, feed, folder, observers, ranks, say)


def _performed(
    order: Order, feed: Feed, folder: RunFolder, observers: Observers | None, ranks: Ranks, say: Callable[[str], None]
) -> dict[str, Any]:
    """To the end, however often a sentinel rolls the run back on the way; each time it is built anew."""
    while True:
        try:
            return _attempted(order, feed, folder, observers, ranks, say)
        except RollBack as back:
            alarm = back.alarm
        with ranks.first_goes_ahead("rolling back"):
            if ranks.first:
                say(roll_back(alarm, order.run.budget.batch, folder, RunEvents(folder.path, say)))


def _attempted(
    order: Order, feed: Feed, folder: RunFolder, observers: Observers | None, ranks: Ranks, say: Callable[[str], None]
) -> dict[str, Any]:
    """Build, go on from the last checkpoint, train to the end and write the result."""
    feed.compiled = order.system.compile
    if ranks.first:
        tell_cache(feed)
    require_memory(order.run, order.system, ranks.size)
    start = order.run.start.build(Context(order.run, order.seed, order.system, ranks=ranks, runs=order.trunks or order.out))
    built = assemble(order.run, order.seed, order.system, feed, start, ranks)
    require_witness(order.levers, built)
    require_same_caches(feed, ranks)
    state, events = resume(built, folder, say), RunEvents(folder.path, say)
    require_agreement(ranks, "where to go on", {"images": state.images})
    if ranks.first:
        events.resume(state.images)
        events.write(SESSION, state.images, {MACHINE: machine_facts(order.system), "system": order.system.model_dump()})
    saver = Saver(built, folder, state)
    sentinels = Sentinels(built, folder, state, events)
    state = _train(order, built, folder, state, observers, say, saver, sentinels)
    return conclude(order, built, folder, state, saver, events)


def _used(order: Order, ranks: Ranks) -> System:
    """The system as it is used, for the checkpoints: nothing is left open that makes a difference to this run."""
    used: dict[str, Any] = {"processes": ranks.size}
    if order.run.precision.compute == "bf16":
        used["bf16"] = bf16_products(order.system)
    return order.system.model_copy(update=used)


def _train(
    order: Order,
    built: Built,
    folder: RunFolder,
    state: State,
    observers: Observers | None,
    say: Callable[[str], None],
    saver: Saver,
    sentinels: Sentinels,
) -> State:
    asked: list[float] = []
    signals: list[int] = []
    stepped: deque[Look] = deque(maxlen=1)
    ranks, agreed, looping = built.ranks, False, False
    go_on = f"go on with: {order.command}" if order.command else "start the same command again to go on"

    def ask(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        # It still encodes, or alone compiles: there is nothing to save, and of many processes none waits for this one.
        if not stepped and (ranks.size == 1 or not looping or built.feed.encoding):
            raise Interrupted(BEFORE_FIRST, go_on).by([number])
        if asked and (ranks.size == 1 or now - asked[0] > ECHO):  # asked twice: do not even finish the step
            raise KeyboardInterrupt
        asked.append(now)
        signals.append(number)

    turns, stalls = count(), ranks.size > 1 and ranks.device.type != "cpu"

    def stop() -> bool:
        nonlocal agreed
        if not stalls or next(turns) % STOP_EVERY == 0:  # all ranks ask at the same steps
            agreed = ranks.any(bool(asked))
        return agreed

    writing: list[Observer] = []
    if ranks.first:
        recorder = Recorder(folder.record, state.images)
        for fault in recorder.faults:
            say(fault)
        saver.before_saving = recorder.flush
        writing = [recorder, ProgressLine(order.label, state.images, order.quiet)]
    main_thread = threading.current_thread() is threading.main_thread()  # no other may listen to signals
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)} if main_thread else {}
    try:
        watching: list[Observer] = [
            stepped.append,
            lambda look: built.feed.let_go(),  # a step was taken, so all that it reads is cached
            lambda look: require_few_skipped(order, look.check.after),  # not look.state: a device would be waited for
            *writing,
            sentinels,
            *(observers(built, folder, state) if observers else []),
            saver,
        ]
        if ranks.size > 1:
            watching = [Standpoint(SAVING), *watching, Standpoint(TRAINING)]
            ranks.standing.at(TRAINING, state.images // order.run.budget.batch)
        looping = True
        state = train(built, state, watching, stop, sentinels.most)
    except (RankLost, RuntimeError) as error:
        saver.leave()
        if signals and not stepped and (isinstance(error, RankLost) or is_loss(error)):
            raise Interrupted(BEFORE_FIRST, go_on).by(signals) from None  # the others were told to stop too, and have
        raise
    except SaveAndLeave:
        ranks.standing.at(SAVING)
        saver.keep(built, stepped[0].state)
        raise
    except RollBack:
        saver.wait()
        raise
    except BaseException:
        saver.leave()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if ranks.first:
            with suppress(OSError):  # what went wrong before is what a person must see
                recorder.write_out()
    if agreed and state.images < order.run.budget.images:
        ranks.standing.at(SAVING)
        saver.keep(built, state)
        terminated = [signal.SIGTERM] if ranks.any(signal.SIGTERM in signals) else []
        raise Interrupted(
            f"stopped at {state.images:,} of {order.run.budget.images:,} images; everything is saved", go_on
        ).by(terminated)
    return state


def conclude(
    order: Order, built: Built, folder: RunFolder, state: State, saver: Saver, events: RunEvents
) -> dict[str, Any]:
    """The last checkpoint and the result, in this order: a result stands for a run that can be used."""
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
    """Steps that were left out are counted against all steps of the budget: as soon as they are too many, nothing that
    follows can make them few."""
    steps = -(-order.run.budget.images // order.run.budget.batch)
    if state.skipped > order.most_skipped * steps or state.skipped >= steps:
        sentinel = " or a sentinel said so" if order.system.on_alarm in ("skip", "roll_back") else ""
        raise TrainingFailed(
            f"{state.skipped} of {steps} steps were left out because they were not finite{sentinel}, more than "
            f"{order.most_skipped:.4g} of them: what is left is another training than the one that was asked for",
            "a term or the data gives NaN: leave optim.not_finite=skip out to see which; or allow more: --most-skipped",
        )
