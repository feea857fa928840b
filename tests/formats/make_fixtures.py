"""Make the files that test_formats.py reads, with commands only:  python
tests/formats/make_fixtures.py

They hold what a release wrote, so that a later one must still read it. Make them again only when a
format has to change. Needs Linux, git and a clean `fulcrum/`. Takes about a minute.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FIXTURES = HERE / "fixtures"
# cells record their absolute path: this one names no machine
SCRATCH = Path("/dev/shm/fulcrum-fixtures")
MODEL = ("model.width=8", "model.depth=1", "model.heads=1", "budget.batch=4", "sample.steps=2")
WORLD = ("data.source.count=8", "data.source.max_objects=2")
# with 1e-15 AdamW follows the sign of rounding errors, which differ between CPUs
SMOOTH = "optim.rule.eps=1e-5"
IMAGES = 120
SAVED = 48  # images after which a run is interrupted
PROMPT = "a large red circle at the top left."
PHRASE = "spark + muon + ema(every=2)"
WORDS = ("note", "warnings")  # of an effect: sentences, which may be written better later
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "fulcrum")
PLAN = f"""title = "Formats"
baseline = "spark"
arms = ["short_captions"]
seeds = [0, 1]
images = 16
settings = {json.dumps([*MODEL, *WORLD])}
samples = 64
compile = false
"""


def settings(*chosen: str) -> list[str]:
    return [word for one in chosen for word in ("--set", one)]


def training(out: str, phrase: str = PHRASE, seed: int = 0) -> list[str]:
    """The words of `fulcrum train`, which test_formats.py repeats."""
    words = ["train", phrase, "--images", str(IMAGES), "--seed", str(seed), "--out", out]
    words += ["--threads", "1", "--no-compile", "--preview-every", "0", "--json"]
    return [*words, *settings(*MODEL, *WORLD, SMOOTH)]


def store_training(store: str, out: str) -> list[str]:
    words = [
        "train",
        "spark",
        "--images",
        "16",
        "--out",
        out,
        "--threads",
        "1",
        "--no-compile",
        "--json",
    ]
    return [
        *words,
        *settings(f"data.source=folder(path='{store}')", "data.size=32", *MODEL, SMOOTH),
    ]


def environment() -> dict[str, str]:
    more = {
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(SCRATCH / "user"),
    }
    return {**os.environ, **more}


def fulcrum(*words: str) -> dict:
    """Run a command; return the JSON object that it printed last."""
    command = [sys.executable, "-m", "fulcrum", *words]
    done = subprocess.run(
        command, cwd=SCRATCH, env=environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if "--json" in words else {}


def interrupt(launcher: tuple[str, ...], out: str) -> Path:
    """Start a run, stop it after SAVED images, and return its folder with the newest checkpoint
    alone."""
    command = [sys.executable, *launcher, *training(out), "--save-every", "4"]
    running = subprocess.Popen(command, cwd=SCRATCH, env=environment(), stdout=subprocess.DEVNULL)
    while running.poll() is None and not list(
        (SCRATCH / out).glob(f"*/checkpoints/{SAVED:012d}/state.json")
    ):
        time.sleep(0.001)
    running.send_signal(signal.SIGTERM)
    running.wait()
    (folder,) = (path.parent for path in (SCRATCH / out).glob("*/about.json"))
    if (folder / "result.json").exists():
        raise SystemExit("the run finished before it could be interrupted: run this script again")
    for checkpoint in sorted((folder / "checkpoints").iterdir())[:-1]:
        shutil.rmtree(checkpoint)
    return folder


def record(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]


def keep(folder: Path, name: str, ignored: Callable[..., set[str]] | None = None) -> None:
    shutil.copytree(folder, FIXTURES / name, ignore=ignored)


def make_finished() -> dict:
    """A finished run with its last checkpoint, weights kept at points before, and what they
    draw."""
    result = fulcrum(*training("finished"), "--keep-checkpoints", "3")
    fulcrum("runs", "gc", "--out", "finished")
    folder = SCRATCH / "finished" / result["key"]
    keep(folder, f"finished/{folder.name}")
    points = [int(path.name) for path in sorted((folder / "kept").iterdir())]
    drawn = FIXTURES / "drawn"
    drawn.mkdir()
    for images in (*points, IMAGES):
        words = ["--out", "finished", "--at", str(images), "--to", f"at_{images}", "--json"]
        (picture,) = fulcrum("sample", result["key"], PROMPT, *words)["files"]
        shutil.copy(SCRATCH / picture, drawn / f"{images}.png")
    names = ("key", "phrase", "images", "weights_sha256")
    return {**{name: result[name] for name in names}, "kept": points, "record": record(folder)}


def make_interrupted(name: str, launcher: tuple[str, ...]) -> dict:
    folder = interrupt(launcher, name)
    keep(folder, f"{name}/{folder.name}")
    (newest,) = (folder / "checkpoints").iterdir()
    return {"key": folder.name, "images": int(newest.name)}


def make_cache() -> dict:
    fulcrum("encode", "spark", "--out", "encoded", "--json", *settings(*MODEL, *WORLD))
    keep(SCRATCH / "encoded" / "cache", "cache", shutil.ignore_patterns("flops"))
    return {
        "entries": sorted(path.name for path in (FIXTURES / "cache").iterdir() if path.is_dir())
    }


def make_store() -> dict:
    """An imported data set of 24 pictures, and what a run on it is called and loses."""
    pictures = SCRATCH / "pictures"
    pictures.mkdir()
    colours = {"red": (220, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 220)}
    with (pictures / "metadata.jsonl").open("w") as table:
        for number in range(24):
            name, colour = list(colours.items())[number % 3]
            picture = Image.new("RGB", (32, 32), (240, 240, 230 - number))
            picture.paste(colour, (number % 16, 4, number % 16 + 10, 20))
            picture.save(pictures / f"{number:02d}.png")
            row = {
                "file_name": f"{number:02d}.png",
                "text": f"a {name} square, {number % 16} from the left.",
            }
            table.write(json.dumps(row) + "\n")
    fulcrum("data", "import", "pictures", "store", "--size", "32", "--hold-out", "0.2")
    keep(SCRATCH / "store", "store")
    checked = fulcrum("data", "check", "store", "--json")
    result = fulcrum(*store_training("store", "on_store"))
    loss = record(SCRATCH / "on_store" / result["key"])[-1]["loss"]
    return {
        "content": checked["content"],
        "samples": checked["samples"],
        "key": result["key"],
        "loss": loss,
    }


def make_study() -> dict:
    """A study folder without weights, cache and page, and the same study kept."""
    (SCRATCH / "plan.toml").write_text(PLAN)
    result = fulcrum("study", "run", "plan.toml", "--threads", "1", "--lanes", "1", "--json")
    fulcrum("study", "keep", "plan.toml", "kept_study")
    keep(SCRATCH / "kept_study", "kept_study")
    (FIXTURES / "study").mkdir()
    shutil.copy(SCRATCH / "plan.toml", FIXTURES / "study")
    left_out = shutil.ignore_patterns(
        "cache", "checkpoints", "previews", "report.*", "*.lock", "lock"
    )
    keep(SCRATCH / "runs", "study/runs", left_out)
    numbers = [{name: row[name] for name in row if name not in WORDS} for row in result["effects"]]
    return {"plan": result["plan"], "effects": numbers}


def made_at() -> str:
    git = ["git", "-C", str(REPOSITORY)]
    if subprocess.run(
        [*git, "status", "--porcelain", "fulcrum"], capture_output=True, check=True
    ).stdout:
        raise SystemExit("fulcrum/ has changes that are not committed: no commit could be named")
    return subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    commit = made_at()
    for folder in (SCRATCH, FIXTURES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    expected = {
        "commit": commit,
        "finished": make_finished(),
        "interrupted": make_interrupted("interrupted", ("-m", "fulcrum")),
        "two_ranks": make_interrupted("two_ranks", LAUNCHER),
        "cache": make_cache(),
        "store": make_store(),
        "study": make_study(),
    }
    (FIXTURES / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (FIXTURES / "README.md").write_text(
        f"Files as commit {commit} wrote them. `expected.json` holds what they were made to"
        " contain.\nThey are read by `../test_formats.py`, and made again by"
        " `../make_fixtures.py`.\n"
    )
    shutil.rmtree(SCRATCH)


if __name__ == "__main__":
    main()
