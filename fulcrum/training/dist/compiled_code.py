"""Whether this machine can compile, and where compiled code is kept: in the user's own cache, apart
for each torch and CPU.

Compiled code is run as it lies there. A folder is used only if it belongs to the user, nobody else
may write to it, and its label says that it was made here: by this torch and Python, with this
compiler, for this CPU (torch compiles for exactly the CPU it finds). Whatever is wrong costs time
and one sentence, never a run.
"""

import atexit
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fulcrum.files.atomic import write_json
from fulcrum.files.paths import read_regular, reason, set_aside
from fulcrum.files.sealed import sha256_json

Say = Callable[[str], None]
FOLDER = "TORCHINDUCTOR_CACHE_DIR"  # torch's own variables; processes that we start inherit them
# the compiler knows the CPU's vector instructions: torch need not try at each start
VECTORS = "TORCHINDUCTOR_VEC_ISA_OK"
HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
LABEL = "made-by.json"
PROGRAM = (
    "#include <Python.h>\n#include <vector>\nint main() { return (int)std::vector<int>(1).size() -"
    " 1; }\n"
)
FLAGS = {
    "AVX512": "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma",
    "AVX2": "-mavx2 -mfma -mf16c",
}
SLOWER = "running without compilation, which is slower"


def compiles_here(say: Say) -> bool:
    """Can blocks be compiled? Where they can, torch is told where to keep them; what is amiss is
    said, once."""
    # the one that torch will call
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    path = shutil.which(compiler)
    if path is None:
        say(f"no C++ compiler was found ({compiler}): {SLOWER}; install g++ to change that")
        return False
    facts = _facts(Path(path))
    folder = _usable(_folder(facts), facts, say)
    label = _label(folder)
    if "vectors" not in label:
        if not _compiled(path):
            say(
                f"the C++ compiler {path} cannot build a program with Python's headers: {SLOWER};"
                " mend it, or set CXX"
            )
            return False
        flags = FLAGS.get(facts["capability"])
        label = {**facts, "vectors": flags is not None and _compiled(path, flags)}
        write_json(folder / LABEL, label)
    os.environ[FOLDER] = str(folder)
    if label["vectors"]:
        os.environ.setdefault(VECTORS, "1")
    if shutil.which("openssl") is None:  # torch calls it to see whether its headers have changed
        os.environ.setdefault(HEADERS, "0")
    return True


def is_compiler_error(error: BaseException) -> bool:
    """Did torch fail while it compiled? Its classes are not imported for that: they bring a second
    of imports."""
    return any(
        type(error).__module__.startswith(part) for part in ("torch._dynamo", "torch._inductor")
    )


def _facts(compiler: Path) -> dict[str, Any]:
    """All that compiled code depends on and its own name does not hold."""
    binary = compiler.resolve().stat()
    return {
        "torch": torch.__version__,
        "python": f"{sys.implementation.cache_tag} {platform.machine()}",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": _cpu(),
        "compiler": [str(compiler), binary.st_size, binary.st_mtime_ns],
    }


def _cpu() -> list[str]:
    """The CPU as the system describes it, with all that it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    kept = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part")
    return [line for line in lines if line.startswith(kept)]


def _folder(facts: dict[str, Any]) -> Path:
    """Where the user says, else in the user's cache; under a name that tells these facts apart."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fulcrum" / "compiled"
    place, name = (
        Path(os.environ.get(FOLDER) or home),
        f"torch-{facts['torch']}-{sha256_json(facts, 16)}",
    )
    return place if place.name == name else place / name


def _usable(folder: Path, facts: dict[str, Any], say: Say) -> Path:
    """The folder, ready to be written to; one that lasts as long as this process where it cannot or
    must not be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        about, label = folder.lstat(), _label(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
            return _passing(
                folder.name, f"compiled code in {folder} is not used: others may write there", say
            )
        known = {name: label.get(name) for name in facts}
        if known != facts and any(
            not path.name.startswith((".", LABEL)) for path in folder.iterdir()
        ):
            differing = [name for name in facts if known[name] != facts[name]]
            say(
                f"compiled code in {folder} was made with another {' and '.join(differing)}: it is"
                " set aside, not used"
            )
            set_aside(folder)
            folder.mkdir(mode=0o700)
        if known != facts:
            write_json(folder / LABEL, facts)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        return _passing(
            folder.name, f"compiled code cannot be kept in {folder}: {reason(error)}", say
        )


def _passing(name: str, why: str, say: Say) -> Path:
    """A folder of this name that is removed at the end of this process."""
    say(f"{why}; it is compiled anew by every command, which is slower")
    place = Path(tempfile.mkdtemp(prefix="fulcrum-compiled-"))
    atexit.register(_remove, place, os.getpid())
    (place / name).mkdir(mode=0o700)
    return place / name


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a process that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _label(folder: Path) -> dict[str, Any]:
    try:
        label = json.loads(read_regular(folder / LABEL, limit=1 << 20, follow=False))
    except (OSError, ValueError):
        return {}
    return label if isinstance(label, dict) else {}


def _compiled(compiler: str, flags: str = "") -> bool:
    """Does the compiler build a program?"""
    words = [
        compiler,
        *flags.split(),
        "-I",
        sysconfig.get_paths()["include"],
        "-x",
        "c++",
        "-c",
        "-",
        "-o",
        os.devnull,
    ]
    try:
        return (
            subprocess.run(
                words, input=PROGRAM.encode(), capture_output=True, timeout=120
            ).returncode
            == 0
        )
    except (OSError, subprocess.SubprocessError):
        return False
