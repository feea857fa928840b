"""What was measured of a run, kept in its folder: by `fulcrum measure`, or by a study that it is a cell of."""

from pathlib import Path
from typing import Any

from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.spec.errors import FulcrumError
from fulcrum.training.run_folder import RunFolder

FILE = "measured.json"


def keep_metrics(folder: RunFolder, metrics: dict[str, Any]) -> None:
    """Of a finished run, for its model card; the last measuring counts."""
    if (result := folder.result()) is not None:
        write_sealed(folder.path / FILE, {"key": folder.path.name, "result": result, "metrics": metrics})


def kept_metrics(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """The newest numbers of these very weights, {name: value, low, high, card}; none where nothing was measured."""
    result = folder.result() or {}
    for path in sorted((*folder.path.glob("measured-*.json"), folder.path / FILE), key=_age, reverse=True):
        try:
            measured = read_sealed(path, "measure the run again")
            if measured["result"]["weights_sha256"] == result.get("weights_sha256"):
                return {name: dict(one) for name, one in measured["metrics"].items()}
        except (FulcrumError, OSError, KeyError, TypeError, AttributeError):
            continue  # damaged, or of another kind: as if it were not there
    return {}


def _age(path: Path) -> float:
    return path.stat().st_mtime if path.is_file() else 0.0
