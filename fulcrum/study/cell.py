"""A cell: one arm under one seed, trained and measured. It runs in a worker process and never twice."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fulcrum.encode.shipped import asset_hash
from fulcrum.measure.card import MEASURE_VERSION
from fulcrum.spec.edit import digest
from fulcrum.spec.run import RunSpec
from fulcrum.spec.system import System
from fulcrum.study.evaluate import REFERENCE, SEED, VALIDATION, Held, measure, prompts
from fulcrum.study.picture import data_uri
from fulcrum.study.preview import previews
from fulcrum.train.folder import RunFolder, read_json, write_json
from fulcrum.train.paint import Painter
from fulcrum.train.session import Order, perform, trained_weights

SHOWN = 12                                                   # pictures of each cell in the report


class Cell(NamedTuple):
    arm: str
    seed: int
    run: RunSpec
    phrase: str
    key: str
    user_files: dict[str, str] = {}


def measured_path(folder: RunFolder, samples: int) -> Path:
    """Where a cell's numbers are kept; named by how they were measured."""
    how = digest([samples, REFERENCE, VALIDATION, SHOWN, SEED, asset_hash("judge"), asset_hash("features"),
                  MEASURE_VERSION])
    return folder.path / f"measured-{how[:12]}.json"


def finished(out: Path, cell_key: str, samples: int) -> dict[str, Any] | None:
    """What a finished cell found, or None."""
    folder = RunFolder(out / cell_key)
    path = measured_path(folder, samples)
    return read_json(path, "remove the file and run the study again") if path.exists() and folder.result() else None


def run_cell(cell: Cell, out: Path, system: System, samples: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Train the cell (or take it as it stands), draw, measure, write down."""
    torch.set_num_threads(system.threads)
    begun = time.perf_counter()
    order = Order(cell.run, cell.seed, cell.phrase, out, system, cell.user_files, quiet=True,
                  label=f"{cell.arm}/{cell.seed}")
    result = perform(order, say, previews)
    trained = time.perf_counter()
    folder = RunFolder(out / cell.key)
    path = measured_path(folder, samples)
    if path.exists():
        return read_json(path, "remove the file and run the study again")
    run, weights = cell.run, trained_weights(folder)
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    painter = Painter(run, weights, codec, text)
    metrics = measure(run, painter, out / "cache", samples)
    metrics["validation_loss"] = Held(run, codec, text, out / "cache").loss(weights).measured()
    shown = prompts(run, SHOWN).texts
    pictures = torch.cat(list(painter.pictures(shown, SEED, np.arange(SHOWN))))
    found = {"arm": cell.arm, "seed": cell.seed, "key": cell.key, "prompts": shown,
             "metrics": {name: value.model_dump() for name, value in metrics.items()},
             "pictures": [data_uri(picture) for picture in pictures], "result": result,
             "seconds": {"training": round(trained - begun, 2), "evaluation": round(time.perf_counter() - trained, 2)}}
    write_json(path, found)
    return found
