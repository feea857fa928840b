"""Record keys and weights hashes of small trainings: did a change of the code change results?

    python bench/goldens.py TREE OUT                  train with the code in TREE, write to OUT
    python bench/goldens.py TREE OUT --only spark ddp
    python bench/goldens.py --compare BEFORE AFTER    print the lines that differ

Only the command line of TREE is used, so its modules may be anywhere. Run both trees on one
machine with one environment: weights hashes differ between kinds of CPU and versions of torch.

A training that fails gets a line with its error. The exit code is 1 if a training failed or if
compared lines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FEW = ("--set", "data.source.count=2048")
ROUTED = ("spark + muon + tread + ema(every=2)", *FEW)
EAGER = ("--no-compile", "--images", "320")
TRAININGS = {
    "spark": ("spark", *EAGER),
    "muon_tread_ema": (*ROUTED, *EAGER),
    "sprint_xpred": ("spark + sprint + x_prediction + min_snr + mixed_captions", *FEW, *EAGER),
    "repa": ("spark + repa + contrastive_flow", *FEW, *EAGER),
    "bf16": ("spark + bf16_storage + stochastic_rounding + bf16_compute", *FEW, *EAGER),
    "ladder": ("spark + resolution_ladder + resolution_condition", *FEW, *EAGER),
    "codec": ("spark + repa + end_to_end_codec", *FEW, *EAGER),
    "micro": ("spark + muon + ema(every=2)", *FEW, *EAGER, "--microbatch", "8"),
    "fsdp": (*ROUTED, *EAGER, "--mesh", "fsdp"),
    "ddp": (*ROUTED, *EAGER, "--mesh", "ddp"),
    "compiled": ("spark", *FEW, "--compile", "--images", "320"),
    "resumed": (*ROUTED, "--no-compile", "--images", "1600"),
}
ON_TWO_PROCESSES = ("fsdp", "ddp")
TIMEOUT = 300.0  # seconds for one training
INTERRUPTED = 130  # exit code after Ctrl-C


class Failed(Exception):
    """A training that gave no result, with what it said last."""


class Trainer:
    """Run `fulcrum train` of a tree in processes of their own, in a scratch folder."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.folder = folder
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.environment = os.environ | one_thread | {"PYTHONPATH": str(tree)}
        self._require_tree(tree)

    def _require_tree(self, tree: Path) -> None:
        """Refuse to measure another tree than the one that was named."""
        code = "import fulcrum; print(fulcrum.__file__)"
        imported = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if imported.returncode or tree not in Path(imported.stdout.strip()).resolve().parents:
            found = imported.stdout.strip() or imported.stderr.strip()
            raise SystemExit(f"expected to import fulcrum from {tree}, found: {found}")

    def train(self, name: str) -> str:
        """Train, and return the key and the weights hash."""
        return result_of(self._start(name))

    def train_in_two_parts(self, name: str) -> str:
        """Interrupt a training after some steps, resume it, and return key and weights hash."""
        process = self._start(name)
        records = f"{name}/*/record.jsonl"
        deadline = time.monotonic() + TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            if any(path.stat().st_size for path in self.folder.glob(records)):
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = finish(process)
        if process.returncode != INTERRUPTED:
            raise Failed(f"interrupted, found exit code {process.returncode}: {reason(errors)}")
        if list(self.folder.glob(f"{name}/*/result.json")):
            raise Failed("the run was finished before it could be interrupted")
        result = self.train(name)
        self._require_resumed(name)
        return result

    def _require_resumed(self, name: str) -> None:
        """Refuse a second part that began at the first image: its result would be the same."""
        events = next(self.folder.glob(f"{name}/*/events.jsonl")).read_text().splitlines()
        rows = [json.loads(line) for line in events]
        begins = [row["images"] for row in rows if row["event"] == "session"]
        if len(begins) != 2 or begins[1] == 0:
            raise Failed(f"expected a second session after some images, found sessions at {begins}")

    def _out(self, name: str) -> Path:
        """Return a folder for this training alone (keys may be equal) with a shared cache."""
        cache = self.folder / "cache"
        cache.mkdir(exist_ok=True)
        out = self.folder / name
        out.mkdir(exist_ok=True)
        if not (out / "cache").is_symlink():
            (out / "cache").symlink_to(cache)
        return out

    def _start(self, name: str) -> subprocess.Popen[str]:
        options = ("--threads", "1", "--quiet", "--json", "--out", str(self._out(name)))
        launcher: tuple[str, ...] = ()
        if name in ON_TWO_PROCESSES:
            launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        return subprocess.Popen(
            [sys.executable, *launcher, "-m", "fulcrum", "train", *TRAININGS[name], *options],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def result_of(process: subprocess.Popen[str]) -> str:
    output, errors = finish(process)
    if process.returncode:
        raise Failed(f"exit code {process.returncode}: {reason(errors)}")
    result = json.loads(output.strip().splitlines()[-1])
    return f"{result['key']} {result['weights_sha256']}"


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a training and return what it wrote to stdout and stderr."""
    try:
        return process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its processes too
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        raise Failed(f"no end after {TIMEOUT:g} s") from None


def reason(text: str) -> str:
    """Return the first line that names an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"(error|\w(Error|Exception)): \S", line)]
    return named[0] if named else (lines or ["no message"])[-1]


def record(tree: Path, out: Path, names: Sequence[str]) -> int:
    """Write a line for each training; return 1 if one of them failed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    code = 0
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(tree, Path(folder).resolve())
        for name in names:
            in_parts = name == "resumed"
            begun = time.monotonic()
            try:
                result = trainer.train_in_two_parts(name) if in_parts else trainer.train(name)
                line = f"{name}: {result}"
            except Failed as failure:
                line = f"{name}: FAILED {failure}"
                code = 1
            print(f"{line}   ({time.monotonic() - begun:.0f} s)", flush=True)
            lines.append(line)
            out.write_text("\n".join(lines) + "\n")
    return code


def compare(before: Path, after: Path) -> int:
    """Print the lines that differ or failed; return 1 if there are any."""
    first = read(before)
    second = read(after)
    code = 0
    for name in first | second:
        old = first.get(name, "missing")
        new = second.get(name, "missing")
        if old == new and not old.startswith("FAILED"):
            continue
        print(f"{name}\n  before: {old}\n  after:  {new}")
        code = 1
    if not first or not second:
        print("nothing to compare: a file has no lines")
        code = 1
    return code


def read(path: Path) -> dict[str, str]:
    rows = [line.partition(": ") for line in path.read_text().splitlines() if line]
    return {name: result for name, _, result in rows}


def main() -> int:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    paths = "TREE OUT, or BEFORE AFTER with --compare"
    add = parser.add_argument
    add("paths", nargs=2, type=Path, metavar="PATH", help=paths)
    add("--compare", action="store_true", help="compare two written files")
    names = list(TRAININGS)
    known = ", ".join(names)
    add("--only", nargs="+", choices=names, default=names, metavar="NAME", help=known)
    asked = parser.parse_args()
    first, second = asked.paths
    if asked.compare:
        return compare(first, second)
    return record(first.resolve(), second, asked.only)


if __name__ == "__main__":
    sys.exit(main())
