"""Builds every shipped part with one deterministic command: train, store, load back, measure, write
the card.

    python -m tools.assets [OUT] [--only codec] [--steps 3] [--processes 2]

Trains on the "assets" split, measures on "validation".  Every part is trained by one thread,
whatever the machine has: the same code on the same kind of processor gives the same sha256.  Two
processes build two parts side by side; the codecs take longest.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from fulcrum.data.world.scene import WORLD_VERSION
from fulcrum.files.atomic import write_atomic
from fulcrum.files.sealed import sha256_bytes
from fulcrum.networks.captioner import load_captioner, load_score
from fulcrum.networks.codec import load_codec
from fulcrum.networks.judges import load_features, load_judge, load_second_judge
from fulcrum.networks.teacher import load_teacher
from fulcrum.networks.text import load_text
from tools.assets.fit import Effort, Progress
from tools.assets.fit_captioner import EFFORT as CAPTIONER
from tools.assets.fit_captioner import fit_captioner, measure_captioner
from tools.assets.fit_codec import CHANNELS, WIDE, fit_aligned, fit_codec, fit_wide, measure_codec
from tools.assets.fit_codec import EFFORT as CODEC
from tools.assets.fit_features import EFFORT as FEATURES
from tools.assets.fit_features import fit_features, measure_features
from tools.assets.fit_judge import EFFORT as JUDGE
from tools.assets.fit_judge import fit_judge, measure_judge
from tools.assets.fit_score import EFFORT as SCORE
from tools.assets.fit_score import fit_score, measure_score
from tools.assets.fit_second_judge import EFFORT as SECOND_JUDGE
from tools.assets.fit_second_judge import fit_second_judge
from tools.assets.fit_supervised_teacher import EFFORT as SUPERVISED
from tools.assets.fit_supervised_teacher import fit_supervised_teacher
from tools.assets.fit_teacher import EFFORT as TEACHER
from tools.assets.fit_teacher import fit_teacher
from tools.assets.fit_text import EFFORT as TEXT
from tools.assets.fit_text import fit_text, measure_text
from tools.assets.teacher_probe import measure_teacher

LICENCE = "Apache-2.0"


@dataclass(frozen=True)
class Part:
    """How one part is made, read back and measured."""

    says: str
    effort: Effort
    fit: Callable[[Effort, Progress], tuple[nn.Module, dict[str, Any]]]
    load: Callable[..., nn.Module]
    measure: Callable[..., dict[str, Any]]


PARTS: dict[str, Part] = {
    "codec": Part(
        f"AutoencoderKL, stride 4, {CHANNELS} channels; latents are normalised per channel, with no"
        " scale beside them",
        CODEC,
        fit_codec,
        load_codec,
        measure_codec,
    ),
    "text": Part(
        "contextual embeddings of the world's captions; every token carries its object's"
        " attributes",
        TEXT,
        fit_text,
        load_text,
        measure_text,
    ),
    "judge": Part(
        "what stands at each of the nine places; judges attribute accuracy, never trains a model",
        JUDGE,
        fit_judge,
        load_judge,
        measure_judge,
    ),
    "judge_second": Part(
        "what stands at each of the nine places, by another architecture from other scenes; checks"
        " 'judge', never trains a model; it reads the shipped 'codec' while it is fitted",
        SECOND_JUDGE,
        fit_second_judge,
        load_second_judge,
        measure_judge,
    ),
    "features": Part(
        "features for distances between sets of pictures; neither the teacher nor the attribute"
        " judge",
        FEATURES,
        fit_features,
        load_features,
        measure_features,
    ),
    "teacher": Part(
        "patch tokens for the alignment levers; learned to see on procedural outlines and patterns"
        " that the world does not have, and by repainting the world's pictures; knows no attribute"
        " and no caption of the world; never used by a metric",
        TEACHER,
        fit_teacher,
        load_teacher,
        measure_teacher,
    ),
    "teacher_supervised": Part(
        "patch tokens for the alignment levers, learned from the world's own attributes, which the"
        " judges ask for; never used by a metric",
        SUPERVISED,
        fit_supervised_teacher,
        partial(load_teacher, "teacher_supervised"),
        measure_teacher,
    ),
    "score": Part(
        "whether a picture and a caption belong together; reads the shipped 'teacher', which was"
        " told nothing of the world, and 'text'; learned from the world's captions what words mean;"
        " filters data, never judges a model",
        SCORE,
        fit_score,
        load_score,
        measure_score,
    ),
    "captioner": Part(
        "captions of the world's pictures in four styles, from pixels alone; learned from captions,"
        " told no attribute; recaptions data, never judges a model",
        CAPTIONER,
        fit_captioner,
        load_captioner,
        measure_captioner,
    ),
    "codec_wide": Part(
        f"as 'codec' in all, with {WIDE} channels",
        CODEC,
        fit_wide,
        partial(load_codec, "codec_wide"),
        measure_codec,
    ),
    "codec_aligned": Part(
        "as 'codec' in all, its latent aligned to 'teacher' by a projector that is not kept",
        CODEC,
        fit_aligned,
        partial(load_codec, "codec_aligned"),
        measure_codec,
    ),
}


def build(
    out: Path,
    only: Sequence[str] | None = None,
    progress: Progress = print,
    steps: int | None = None,
    measured_on: int = 1000,
    processes: int = 1,
) -> dict[str, dict[str, Any]]:
    """Build the parts into `out` and return their cards by name.  `steps` shortens every training
    (for tests)."""
    names = list(PARTS) if only is None else list(only)
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise ValueError(f"no part is called {', '.join(unknown)}; parts are {', '.join(PARTS)}")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    if processes == 1:
        return {name: _build_one(name, out, progress, steps, measured_on) for name in names}
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        lines = manager.Queue()
        parts = {
            name: pool.submit(_build_one, name, out, lines.put, steps, measured_on)
            for name in names
        }
        while not (all(part.done() for part in parts.values()) and lines.empty()):
            try:
                progress(lines.get(timeout=0.2))
            except queue.Empty:
                continue
        return {name: part.result() for name, part in parts.items()}


def _build_one(
    name: str, out: Path, progress: Progress, steps: int | None, measured_on: int
) -> dict[str, Any]:
    """One part, by one thread: sums in another order would give other weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _train_and_store(name, PARTS[name], out, progress, steps, measured_on)
    finally:
        torch.set_num_threads(threads)


def _train_and_store(
    name: str, part: Part, out: Path, progress: Progress, steps: int | None, measured_on: int
) -> dict[str, Any]:
    effort = part.effort if steps is None else replace(part.effort, steps=steps)
    network, built = part.fit(effort, progress)
    data = save(_stored(network))  # no metadata: its order would not be deterministic
    card: dict[str, Any] = {
        "name": name,
        "kind": type(network).__name__,
        "says": part.says,
        "config": network.config,
        "parameters": sum(p.numel() for p in network.parameters()),
        "bytes": len(data),
        "stored": "float16",
        "sha256": sha256_bytes(data),
        "licence": LICENCE,
        "built": {
            **built,
            "split": "assets",
            "world_version": WORLD_VERSION,
            "torch": torch.__version__,
            "threads": 1,
            "command": f"python -m tools.assets --only {name}",
        },
    }
    write_atomic(out / f"{name}.safetensors", data)
    _write_card(out, card)
    # What ships is measured, not what was in memory: rounded to fp16, read back by the public
    # loader.
    card["quality"] = {
        "split": "validation",
        "scenes": measured_on,
        **part.measure(part.load(folder=out), measured_on),
    }
    _write_card(out, card)
    progress(
        f"{name}: {card['parameters']:,} parameters, {card['bytes'] / 1e6:.2f} MB,"
        f" {card['quality']}"
    )
    return card


def _stored(network: nn.Module) -> dict[str, torch.Tensor]:
    """Floats as fp16, the rest as they are; contiguous, because channels_last is no part of a
    file."""
    return {
        name: (value.half() if value.is_floating_point() else value).contiguous()
        for name, value in network.state_dict().items()
    }


def _write_card(out: Path, card: dict[str, Any]) -> None:
    write_atomic(out / f"{card['name']}.json", json.dumps(card, indent=1) + "\n")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the shipped frozen parts.")
    parser.add_argument(
        "out",
        nargs="?",
        type=Path,
        default=Path("fulcrum/networks/assets"),
        help="folder to write to",
    )
    parser.add_argument("--only", action="append", choices=list(PARTS))
    parser.add_argument("--steps", type=int, help="shorten every training (for a trial)")
    parser.add_argument("--processes", type=int, default=1, help="parts built side by side")
    arguments = parser.parse_args(words)
    build(arguments.out, arguments.only, steps=arguments.steps, processes=arguments.processes)
