"""Commands that break promises, for the attack to find, each with one that keeps them."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from fulcrum.files.atomic import write_atomic
from fulcrum.files.lock import locked

TEXT = "one line\n" * 40


def main() -> None:
    globals()[sys.argv[1]]()


def careless() -> None:
    """Written in place: a kill on the way leaves half of it, which the next start takes for the
    whole."""
    if not Path("result").exists():
        with Path("result").open("w") as stream:
            for line in TEXT.splitlines(keepends=True):
                stream.write(line)
                stream.flush()
    print("done")


def careful() -> None:
    try:
        if not Path("result").exists():
            write_atomic(Path("result"), TEXT)
    except OSError as error:
        print(f"cannot write the result: {error.strerror}")
        sys.exit(1)
    print("done")


def talkative() -> None:
    """A full disk ends in a traceback."""
    write_atomic(Path("result"), TEXT)


def appends() -> None:
    """Two at once both add their part."""
    if not Path("result").exists():
        time.sleep(0.4)
        with Path("result").open("a") as stream:
            stream.write(TEXT)
    print("done")


def appends_alone() -> None:
    with locked(Path("lock")):
        if not Path("result").exists():
            time.sleep(0.4)
            write_atomic(Path("result"), TEXT)
    print("done")


def astray() -> None:
    """Writes beside its folder: by its name, behind a link, by a rename, and in a process that it
    has started."""
    Path("../beside.txt").write_text("x")
    Path("link").symlink_to("..")
    Path("link/behind.txt").write_text("x")
    Path("own.txt").write_text("x")
    Path("own.txt").rename("../renamed.txt")
    subprocess.run(["cp", "/dev/null", "../started.txt"], check=True)
    Path("result").write_text("whole")


def at_home() -> None:
    with tempfile.NamedTemporaryFile(), Path("result").open("w") as stream:
        stream.write("whole")
    Path("deep").mkdir()
    Path("deep/../own.txt").write_text("x")
    subprocess.run(["cp", "/dev/null", "deep/copy"], check=True)


def year() -> None:
    Path("touched").write_text("")
    print(time.gmtime().tm_year, int(time.time()))


def greedy() -> None:
    try:
        print(len(bytearray(1 << 30)))
    except MemoryError:
        print("there is not enough memory")
        sys.exit(1)


def parent() -> None:
    Path("begun").write_text(str(os.getpid()))
    print("worker ended with", subprocess.Popen(["sleep", "60"]).wait())


def threaded_parent() -> None:
    thread = threading.Thread(target=parent)
    thread.start()
    thread.join()


def watchful_parent() -> None:
    """Looks whether its worker stands still, and ends it."""
    worker = subprocess.Popen(["sleep", "60"])
    _, status = os.waitpid(worker.pid, os.WUNTRACED)
    print("worker stands still" if os.WIFSTOPPED(status) else "worker is gone")
    worker.kill()


def patient() -> None:
    time.sleep(60)
