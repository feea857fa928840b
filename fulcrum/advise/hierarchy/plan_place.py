"""Where a plan may be written: asked before anything that takes time, so it imports nothing that does."""

from pathlib import Path

from fulcrum.spec.errors import BadInput


def require_free(path: Path) -> None:
    """Refuse a name that is taken, or a folder that is not there."""
    if path.exists() or path.is_symlink():
        raise BadInput(f"{path} is there already, and a plan is never overwritten", "choose another name")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent}", "make it first, or choose another place")
