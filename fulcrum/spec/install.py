"""What a person types to install a package that is missing: with the Python that runs this, from the clone if it is one."""

import os
import shlex
import shutil
import sys
from importlib.resources import files
from pathlib import Path

HOME = Path(str(files("fulcrum"))).resolve().parent  # the clone; of a copy among the installed packages: these


def install(*words: str) -> str:
    """pip's command. Its bare name is another Python's where the environment is not activated: then Python is named."""
    own, pip_path = Path(sys.executable), shutil.which("pip")
    pip = ["pip"] if pip_path and Path(pip_path).parent == own.parent else [_near(own), "-m", "pip"]
    return shlex.join([*pip, "install", *words])


def install_extra(name: str) -> str:
    """The command that adds one of pyproject's groups of optional packages."""
    if (HOME / "pyproject.toml").is_file():
        return install("-e", f"{_near(HOME)}[{name}]")
    return install(f"fulcrum-lab[{name}]")


def _near(path: Path) -> str:
    """As it is written from here, where it lies below."""
    here = Path(os.getcwd())
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
