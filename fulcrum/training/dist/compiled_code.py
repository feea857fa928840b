"""Find out whether this machine can compile blocks, and tell torch where to keep compiled code.

The code is kept in the user's cache, in one folder for each torch, Python and CPU: torch compiles
for exactly the CPU that it finds, and two machines may share a home. A compile that fails later
costs time and one warning: the session trains without it.
"""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch

from fulcrum.files.paths import reason
from fulcrum.files.sealed import sha256_json

FOLDER = "TORCHINDUCTOR_CACHE_DIR"  # torch's own variables; processes that we start inherit them
# torch need not try the CPU's vector instructions at each start, which takes a second
VECTORS = "TORCHINDUCTOR_VEC_ISA_OK"
HEADERS = "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"
SLOWER = "running without compilation, which is slower"


def compiles_here(say: Callable[[str], None]) -> bool:
    """Return whether blocks can be compiled, and say why not. Where they can, tell torch where to
    keep them."""
    # the one that torch will call
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        say(f"no C++ compiler was found ({compiler}): {SLOWER}; install g++ to change that")
        return False
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        say(f"Python's headers are not in {headers}: {SLOWER}; install python3-dev to change that")
        return False
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ[FOLDER] = str(folder)
    except OSError as error:
        os.environ.pop(FOLDER, None)
        say(
            f"compiled code cannot be kept in {folder}: {reason(error)}; torch keeps it in its own"
            " temporary folder"
        )
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        os.environ.setdefault(VECTORS, "1")
    if shutil.which("openssl") is None:  # torch calls it to see whether its headers have changed
        os.environ.setdefault(HEADERS, "0")
    return True


def is_compiler_error(error: BaseException) -> bool:
    """Return whether torch failed while it compiled. Its classes are not imported for that: they
    bring a second of imports."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


def _folder() -> Path:
    """Below the folder that the user names, else in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get(FOLDER) or cache / "fulcrum" / "compiled")
    python = f"{sys.implementation.cache_tag} {platform.machine()}"
    name = f"torch-{torch.__version__}-{sha256_json([python, _cpu()], 16)}"
    return place if place.name == name else place / name


def _cpu() -> list[str]:
    """The CPU as the system describes it, with all that it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    kept = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part")
    return [line for line in lines if line.startswith(kept)]
