"""The command line: thin commands over the rooms; nothing heavy is imported before a command needs
it."""

import atexit
import errno
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from types import FrameType
from typing import Annotated

import typer

from fulcrum.cli import (
    advise,
    assets,
    audit,
    data,
    doctor,
    encode,
    levers,
    measure,
    runs,
    study,
    train,
)
from fulcrum.cli import caption as caption_command
from fulcrum.cli import estimate as estimate_command
from fulcrum.cli import export as exporting
from fulcrum.cli import rerun as rerun_command
from fulcrum.cli import sample as sampling
from fulcrum.cli.gallery import command as gallery_command
from fulcrum.cli.options import speaks
from fulcrum.spec.errors import INTERRUPTED, REQUEUE, FulcrumError, RankLost, shown_lines

UNREAD = 141  # as shells have it: 128 and the signal's number
LONGEST = 8_000  # letters of a message: it may quote what was given, whatever its length
BEGIN_ANEW = ("advise", "audit", "estimate")  # commands that keep nothing to go on from
OF_MANY = ("train", "rerun")  # commands that many processes share
TRACEBACK = "FULCRUM_TRACEBACK"  # environment: set, it shows where an error came from

app = typer.Typer(
    name="fulcrum",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=(
        "A laboratory for training text-to-image models: change one training decision at a time,"
        " and learn with honest uncertainty what it moved and what it cost."
    ),
    epilog=(
        'Begin with:  fulcrum train spark   ·   fulcrum sample RUN "a large red circle at the top'
        ' left."   ·   fulcrum study run quick'
    ),
)

for commands in (
    train,
    estimate_command,
    sampling,
    gallery_command,
    exporting,
    encode,
    study,
    measure,
    levers,
    audit,
    advise,
    runs,
    rerun_command,
    assets,
    data,
    caption_command,
    doctor,
):
    commands.register(app)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fulcrum-lab {version('fulcrum-lab')}")
        raise typer.Exit()


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Tell which release this is."
        ),
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every failure becomes a message, a hint and an exit code, never a
    traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    stopped_by, begun = "Ctrl-C", _groups_begun()

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal stopped_by
        stopped_by = "SIGTERM"
        signal.default_int_handler(number, frame)

    # a polite kill is a Ctrl-C: workers are told, cells saved
    signal.signal(signal.SIGTERM, terminate)
    try:
        code = app(args=words, standalone_mode=False)
        if code == INTERRUPTED:  # typer catches the Ctrl-C and only returns this number
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        code = INTERRUPTED if stopped_by == "Ctrl-C" else REQUEUE
        _end_at_once_if_asked_again(code)
        anew = next(iter(words), "") in BEGIN_ANEW
        hint = "started again, it begins anew" if anew else "start the same command again to go on"
        code = _failed(f"stopped by {stopped_by}", hint, code, words)
    except SystemExit as error:
        code = _ended(error)
        if code is None:  # it would have ended with success and without a word
            code = _told(error, words, begun)
    except Exception as error:
        if os.environ.get(TRACEBACK):  # of every process
            traceback.print_exception(error)
        code = _told(error, words, begun)
    atexit.register(_end_undisturbed)
    sys.exit(_flushed(code if isinstance(code, int) else 0))


def _groups_begun() -> int:
    """How often this process has begun to join others; without torch it has not."""
    joining = sys.modules.get("fulcrum.training.dist.ranks")
    return int(joining.Groups.begun) if joining else 0


def _end_at_once_if_asked_again(code: int) -> None:
    """Asked once more while it ends: at once, and with the same code. Python would end by the
    signal, as if unhandled."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(code))


def _end_undisturbed() -> None:
    """All is said and done: while Python takes itself down, with torch for a second, a signal would
    end it with -2."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _flushed(code: int) -> int:
    """The exit code, once what was printed is out; Python would say of a failure only that it
    ignored it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            if stream is sys.stdout and error.errno != errno.EPIPE and code == 0:
                _failed(
                    f"standard output cannot be written: {error.strerror}",
                    "the command itself was done",
                    1,
                    [],
                )
            code = code or (UNREAD if error.errno == errno.EPIPE else 1)
            # for what Python flushes once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _ended(error: SystemExit) -> int | None:
    """The exit code that typer itself ends with, unread output too; None where a person's own code
    ended the process."""
    from fulcrum.spec.phrase import place

    # whoever read standard output has gone away, as `head` does
    if isinstance(error.__context__, BrokenPipeError):
        return UNREAD
    return None if place(error) else error.code if isinstance(error.code, int) else 0


def _explained(error: BaseException) -> tuple[str, str, int]:
    """What an error says to a person: message, hint, exit code."""
    # only now: --help is to be fast
    from fulcrum.files.paths import is_out_of_memory, sentence_and_hint
    from fulcrum.spec.phrase import failed, place

    if isinstance(error, typer.Abort):  # at a question: Ctrl-C, or nobody there to answer
        stopped = isinstance(error.__context__, KeyboardInterrupt)
        return "stopped", "", INTERRUPTED if stopped else 1
    if hasattr(error, "format_message"):  # one of typer's own: words it could not read
        return error.format_message(), "see: fulcrum --help", 2
    where = place(error)
    if isinstance(error, FulcrumError):
        raised = f"raised in {where}" if where and where not in error.message else ""
        return error.message, "\n  ".join(filter(None, (error.hint, raised))), error.exit_code
    if where:
        error = failed(error, "your own file failed")
        return error.message, error.hint, error.exit_code
    if is_out_of_memory(error):
        return (
            "there is not enough memory",
            "smaller batches take less: --set budget.batch=8, or fewer lanes of a study",
            1,
        )
    if isinstance(error, OSError):
        return *sentence_and_hint(error), 1
    return (
        f"{type(error).__name__}: {error}",
        f"this should not happen: {TRACEBACK}=1 shows where it came from; please report it",
        1,
    )


def _told(error: BaseException, words: list[str], begun: int) -> int:
    """Say an error and give its code, whatever is sent meanwhile: Ctrl-C would end Python by the
    signal, with -2, and a launcher's SIGTERM to the others of a run that fails would mute them. Who
    stopped says so, though told once more."""
    stopped = isinstance(error, FulcrumError) and error.exit_code in (INTERRUPTED, REQUEUE)
    before = {
        signal.SIGINT: signal.signal(
            signal.SIGINT, signal.SIG_IGN if stopped else lambda *_: os._exit(INTERRUPTED)
        ),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    }
    try:
        code = _failed_of_many(error, words, begun)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code in (INTERRUPTED, REQUEUE):
        _end_at_once_if_asked_again(code)
    return code


def _failed_of_many(error: BaseException, words: list[str], begun: int) -> int:
    """Say an error, of many processes once if all have it. Before a process has joined the others
    it asks them."""
    message, hint, code = _explained(error)
    if (
        os.environ.get("WORLD_SIZE", "1") != "1"
        and {*words[:1]} & {*OF_MANY}
        and _groups_begun() == begun
    ):
        from fulcrum.training.dist.early_error import telling_others

        with telling_others(message, os.environ) as whose:
            return code if whose is None else _failed(message, hint, code, words, whose)
    # it may be this process's alone: never lose it
    unlike = not isinstance(error, FulcrumError) and code == 1
    heard = speaks() or not (unlike or (isinstance(error, RankLost) and error.speaker))
    if heard and getattr(error, "rank", None) is None:
        return _failed(message, hint, code, words)
    return _failed(
        message,
        hint,
        code,
        words,
        f"rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')}",
    )


def _failed(message: str, hint: str, code: int, words: list[str], whose: str = "") -> int:
    """Say it, once: other processes of a run fail in the same way, and leave quietly with the same
    code. `whose`: the ranks that alone have this error; it is said by this one."""
    message, hint = (
        text if len(text) <= LONGEST else f"{text[:LONGEST]} ..." for text in (message, hint)
    )
    # Who stops a command made no mistake.
    begins = "" if code in (INTERRUPTED, REQUEUE) else f"error on {whose}: " if whose else "error: "
    lines = shown_lines(f"{begins}{message}" + (f"\n  {hint}" if hint else ""))
    try:
        if speaks() and "--json" in words:
            print(
                json.dumps({"error": f"{whose}: {message}" if whose else message, "hint": hint}),
                flush=True,
            )
        elif speaks() or whose:
            print(lines, file=sys.stderr, flush=True)
    except OSError:  # nobody hears standard output: the disk that it goes to is full
        with suppress(OSError):
            print(lines, file=sys.stderr)
    return code
