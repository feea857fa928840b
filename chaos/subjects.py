"""The commands under attack, each with the folder that it begins from and with what must be the
same at its end."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from chaos.trial import End, Host

SMALL = [
    word
    for setting in ("model.width=32", "model.heads=2", "budget.batch=16", "data.source.count=64")
    for word in ("--set", setting)
]
TRAIN = [
    "train",
    "spark",
    "--images",
    "96",
    "--save-every",
    "32",
    "--threads",
    "1",
    "--no-compile",
    "--json",
    "--quiet",
    *SMALL,
]
ENCODE = ["encode", "spark", "--quiet", *SMALL]
IMPORT = ["data", "import", "pictures", "store", "--size", "32", "--quiet"]
CAPTION = [
    "caption",
    "store",
    "captioned",
    "--model",
    "world",
    "--keep-all",
    "--block",
    "4",
    "--styles",
    "long",
    "--quiet",
]
RUN = "RUN"  # stands for the one run of a folder
PLAN = """title = "chaos"
baseline = "spark"
images = 32
settings = ["model.width=32", "model.heads=2", "budget.batch=16", "data.source.count=64"]
arms = ["muon"]
seeds = [0, 1]
samples = 64
smallest_effect = 0.02
threads = 1
compile = false
"""


class Subject(NamedTuple):
    name: str
    words: list[str]
    prepare: Callable[[Host, Path], None]  # what lies in the folder before the command
    outcome: Callable[[Path, End], str]  # equal for equal ends
    starts_workers: bool = False
    works_in_torch: bool = True  # whose libraries may give up without a word when memory is short

    def words_in(self, folder: Path) -> list[str]:
        runs = [str(path.relative_to(folder).parent) for path in folder.glob("runs/*/about.json")]
        return [runs[0] if word == RUN else word for word in self.words]


def _nothing(host: Host, folder: Path) -> None: ...


def _encoded(host: Host, folder: Path) -> None:
    _in_peace(host, ENCODE, folder)


def _pictures(host: Host, folder: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (12, 3), dtype=np.uint8)
    (folder / "pictures").mkdir()
    for number, colour in enumerate(colours):
        Image.new("RGB", (40, 40), tuple(int(part) for part in colour)).save(
            folder / "pictures" / f"{number}.png"
        )
        (folder / "pictures" / f"{number}.txt").write_text(f"a square of colour {colour[0]}")


def _imported(host: Host, folder: Path) -> None:
    _pictures(host, folder)
    _in_peace(host, IMPORT, folder)


def _trained(host: Host, folder: Path) -> None:
    _in_peace(host, TRAIN, folder)


def _planned(host: Host, folder: Path) -> None:
    _encoded(host, folder)
    (folder / "plan.toml").write_text(PLAN)


def _in_peace(host: Host, words: list[str], folder: Path) -> None:
    end = host.run(words, folder)
    if end.exit != 0:
        raise SystemExit(f"fulcrum {' '.join(words)} failed in peace:\n{end.text}")


def _weights(folder: Path, end: End) -> str:
    return str(_last_line(end)["weights_sha256"])


def _metrics(folder: Path, end: End) -> str:
    return json.dumps(_last_line(end).get("metrics"), sort_keys=True)


def _files(*under: str) -> Callable[[Path, End], str]:
    """Names and bytes of what lies there. Locks hold nothing, and nobody reads the journals of an
    entry that has its name: they are removed last, so that a kill before may leave one."""

    def outcome(folder: Path, end: End) -> str:
        hashes = {}
        for name in under:
            for path in sorted((folder / name).rglob("*")):
                if (
                    path.is_file()
                    and path.suffix not in (".lock", ".journal")
                    and not path.name.startswith(".")
                ):
                    hashes[str(path.relative_to(folder))] = hashlib.sha256(
                        path.read_bytes()
                    ).hexdigest()
        return json.dumps(hashes, indent=1)

    return outcome


def _effects(folder: Path, end: End) -> str:
    """Of all that is not decided by a clock."""
    (result,) = folder.glob("runs/study-*/report.json")
    effects = json.loads(result.read_text())["effects"]
    return json.dumps([effect for effect in effects if effect["unit"] != "time"], sort_keys=True)


def _captions(folder: Path, end: End) -> str:
    """What the store holds; who wrote it and when stands in other fields."""
    return str(json.loads((folder / "captioned" / "store.json").read_text())["content"])


def _last_line(end: End) -> dict[str, object]:
    return dict(json.loads([line for line in end.text.splitlines() if line.startswith("{")][-1]))


SUBJECTS = (
    TRAINING := Subject("train", TRAIN, _encoded, _weights),
    Subject("train, nothing encoded", TRAIN, _nothing, _weights),
    ENCODING := Subject("encode", ENCODE, _nothing, _files("runs/cache")),
    IMPORTING := Subject("import", IMPORT, _pictures, _files("store"), works_in_torch=False),
    CAPTIONING := Subject("caption", CAPTION, _imported, _captions),
    Subject(
        "measure", ["measure", RUN, "--samples", "64", "--json", "--quiet"], _trained, _metrics
    ),
    STUDYING := Subject(
        "study",
        ["study", "run", "plan.toml", "--threads", "1"],
        _planned,
        _effects,
        starts_workers=True,
    ),
)
