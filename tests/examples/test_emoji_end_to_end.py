"""The emoji plug-in from outside of the package: import, train and measure by its files alone,
through public modules."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fulcrum.cli import main
from fulcrum.levers.catalog import files_of, with_files
from fulcrum.old_paths import FORMER_PATHS
from fulcrum.spec.phrase import parse
from tests import fake_emoji

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "emoji"
RENDERER = "from tests.fake_emoji import Renderer\nsvg_to_bytes = Renderer().svg_to_bytes\n"
LETTERS = '''"""A text encoder of one's own: each letter is a token."""
from typing import ClassVar

from fulcrum.spec import slots


class Letters(slots.TextFiller):
    kind: ClassVar[str] = "letters"
    width: int = 32

    def build(self, ctx):
        import torch
        from torch import nn

        class Encoder(nn.Module):
            longest = 48

            def encode(self, prompts):
                emb = torch.zeros(len(prompts), self.longest, 32)
                mask = torch.zeros(len(prompts), self.longest, dtype=torch.bool)
                for row, prompt in enumerate(prompts):
                    for column, letter in enumerate(prompt[: self.longest] or " "):
                        emb[row, column, ord(letter) % 32] = mask[row, column] = True
                return emb, mask

        return Encoder()
'''
TINY = [
    "model.width=32",
    "model.depth=2",
    "model.heads=2",
    "data.size=16",
    "sample.steps=2",
    "encode.text=letters",
]


def colours(number, style):
    """No two alike: a picture that comes twice is kept once, and the reference must hold 64."""
    return (
        f'<path fill="#{(number * 7919 + sum(map(ord, style)) * 104729) % 0xFFFFFF:06x}" d="M1'
        ' 1h9v9h-9z"/>'
    )


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    written = capsys.readouterr()
    assert not end.value.code, written.err
    return json.loads(written.out.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A folder with emoji_16, as the example's own command imports it, and with letters.py."""
    folder = tmp_path_factory.mktemp("emoji")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake_emoji, "body", colours)
        fake_emoji.write_packages(
            folder / "packages",
            ("noto", "twemoji", "fluent", "emojione", "old", "blob", "openmoji"),
        )
    (folder / "site").mkdir()
    (folder / "site" / "resvg_py.py").write_text(RENDERER)
    (folder / "letters.py").write_text(LETTERS)
    written = subprocess.run(
        [sys.executable, "-m", "examples.emoji", "packages", "--size", "16", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "site")])},
        capture_output=True,
        text=True,
    )
    assert written.returncode == 0, written.stderr
    facts = json.loads(written.stdout.splitlines()[-1])
    assert facts["folder"] == "emoji_16" and facts["concepts"]["splits"]["reference"] >= 64
    return folder


def trained(capsys, recipe, *settings):
    """Train a recipe of the example on 24 tiny pictures, then measure it."""
    words = [
        word
        for setting in (*TINY, "data.source.path=emoji_16", *settings)
        for word in ("--set", setting)
    ]
    words += [
        "--with",
        EXAMPLE / "recipe.py",
        "--with",
        "letters.py",
        "--images",
        24,
        "--no-compile",
    ]
    run = fulcrum(capsys, "train", recipe, *words, "--threads", 1, "--quiet", "--json")
    measured = fulcrum(
        capsys,
        "measure",
        run["key"],
        "--with",
        "letters.py",
        "--samples",
        64,
        "--threads",
        1,
        "--quiet",
        "--json",
    )
    assert run["images"] == 24 and {"frechet", "mmd", "validation_loss"} <= set(measured["metrics"])
    return json.loads((Path(run["run"]) / "about.json").read_text())


def test_import_train_and_measure(imported, monkeypatch, capsys):
    monkeypatch.chdir(imported)
    about = trained(capsys, "emoji")
    assert about["run"]["data"]["source"]["path"].endswith("emoji_16")
    assert [name.startswith("fulcrum_user_letters") for name in about["user_files"]] == [True], (
        "the code that it runs"
    )


def test_a_codec_that_diffusers_wrote_is_trained_on_from_its_folder(imported, monkeypatch, capsys):
    diffusers = pytest.importorskip("diffusers", reason="the codec is one of diffusers' classes")
    monkeypatch.chdir(imported)
    levels = {
        f"{half}_block_types": (f"{kind}Block2D",) * 3
        for half, kind in (("down", "DownEncoder"), ("up", "UpDecoder"))
    }
    codec = diffusers.AutoencoderKL(
        latent_channels=8, block_out_channels=(8, 8, 8), norm_num_groups=1, **levels
    )
    codec.save_pretrained("codec")
    about = trained(capsys, "emoji_latents", "budget.batch=8")
    assert about["run"]["encode"]["codec"]["path"].endswith("codec")
    assert about["run"]["encode"]["codec"]["network"] == "AutoencoderKL"


def test_a_recipe_is_a_value_its_file_is_not_in_the_key():
    known, hashes = with_files([EXAMPLE / "recipe.py"])
    phrase = parse("emoji + short_captions", known)
    assert hashes and files_of(phrase, hashes) == {}


def test_the_plug_in_uses_public_modules_only():
    """Those that docs/decisions/0020-public-api.md names, or their former paths."""
    page = (ROOT / "docs" / "decisions" / "0020-public-api.md").read_text()
    public = set(re.findall(r"`(fulcrum[\w.]*)`", page))
    used = {}
    for path in EXAMPLE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [one.name for one in getattr(node, "names", [])]
            )
            if isinstance(node, ast.Import | ast.ImportFrom):
                used.update(
                    {name: path.name for name in names if name and name.split(".")[0] == "fulcrum"}
                )
    today = {FORMER_PATHS.get(name, name): file for name, file in used.items()}
    assert used and {name: file for name, file in today.items() if name not in public} == {}
