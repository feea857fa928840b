"""Emoji from packages: found in folders and tars, drawn, captioned by their pixels, concepts and a
style held out."""

import json
import shutil
import tarfile

import numpy as np
import pytest

from examples.emoji import reader as emoji
from examples.emoji.__main__ import main
from examples.emoji.packages import IconSet, open_packages, slug
from examples.emoji.reader import EmojiReader, draw, family, split_of
from examples.emoji.recipe import MINILM
from examples.emoji.recipe import emoji as recipe
from examples.emoji.words import colour_names, long, measure, medium
from fulcrum.data.captions import Chooser
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.networks.pretrained.folder import PACKAGES
from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput
from tests.fake_emoji import Renderer, icon_set, names, write_packages


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.setattr(emoji, "_renderer", Renderer)
    return write_packages(tmp_path / "packages")


def test_names_become_icons_names():
    assert [
        slug(one) for one in ("red apple", "one o’clock", "Piñata", "Mrs. Claus", "A&B “x”!")
    ] == [
        "red-apple",
        "one-oclock",
        "pinata",
        "mrs-claus",
        "aandb-x",
    ]


def test_packages_are_found_in_tars_in_folders_and_in_a_tar_of_tars(packages, tmp_path):
    whole = open_packages(packages)
    assert list(whole.sets) == ["noto", "openmoji", "twemoji"] and len(whole.names) == 63
    assert whole.names["red-apple"].keywords == ("thing", "apple")
    assert whole.sets["noto"].groups["red-apple"] == "Things & Words"
    out = tmp_path / "out"
    for one in packages.iterdir():
        shutil.unpack_archive(one, out / one.name.split("-1.0")[0], "gztar")
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(packages, "packages")
    assert open_packages(out) == whole and open_packages(tmp_path / "all.tar") == whole
    info = {"category": "Emoji", "palette": True, "license": {"spdx": "X"}}
    one = {**icon_set("noto", names()[1])["icons.json"], "info": info}
    (out / "json").mkdir()
    (out / "json" / "noto.json").write_text(json.dumps(one))
    assert open_packages(out).sets["noto"].licence == "X", "the package with all sets in one folder"


@pytest.mark.parametrize(
    "spoil, says",
    [
        (lambda folder: (folder / "cldr-annotations-full-1.0.0.tgz").unlink(), "no annotations/en"),
        (lambda folder: [one.unlink() for one in folder.glob("iconify*")], "no icon set"),
        (
            lambda folder: (folder / "iconify-json-noto-1.0.0.tgz").write_bytes(
                b"\x1f\x8b not a tar"
            ),
            "cannot be read",
        ),
        (lambda folder: [one.unlink() for one in folder.glob("*moji-1*")], "only one style"),
    ],
)
def test_what_is_missing_or_broken_is_named(packages, spoil, says):
    spoil(packages)
    with pytest.raises(BadInput, match=says):
        EmojiReader(packages, 16)


def test_an_unknown_style_and_a_missing_renderer_are_named(packages, monkeypatch):
    with pytest.raises(BadInput, match="no style is called 'notto'"):
        EmojiReader(packages, 16, style="notto")
    monkeypatch.undo()
    monkeypatch.setitem(__import__("sys").modules, "resvg_py", None)
    with pytest.raises(BadInput, match="resvg-py"):
        EmojiReader(packages, 16)


@pytest.mark.parametrize(
    "danger",
    [
        '<image href="file:///etc/passwd"/>',
        '<use href="http://x.y/z.svg"/>',
        "<!DOCTYPE svg>",
        "<script>1</script>",
        '<path style="fill:url(http://x.y)"/>',
        "<style>@import 'x'</style>",
        '<feImage xlink:href="#a"/>',
        "x" * (2 << 20),
    ],
)
def test_svg_that_could_reach_outside_is_refused(danger):
    icons = IconSet("noto", "Noto", "MIT", "1", {"x": {"body": danger}}, (0, 0, 16, 16), {})
    with pytest.raises(ValueError, match="SVG"):
        draw(icons, "x", 16)


def test_every_sample_has_three_captions_or_a_reason(packages):
    reader = EmojiReader(packages, 16)
    given = list(reader)
    assert reader.share() == 1 and [one.name for one in given] == [
        one.name for one in EmojiReader(packages, 16)
    ]
    kept = [one for one in given if one.data]
    reasons = {one.left for one in given if not one.data}
    assert len(kept) == 2 * 62 and not any(one.fault for one in given)
    assert len(reasons) == 3 and all(one.name.startswith(("noto/", "twemoji/")) for one in kept)
    apple = next(one for one in kept if one.name == "noto/red-apple")
    assert apple.captions["short"] == ["red apple"] and apple.captions["medium"] == [
        "red apple: thing, apple"
    ]
    assert apple.captions["long"] == [
        "red apple in the style of Noto, one of things and words (thing, apple). It is "
        "mostly red, of middle size, as wide as tall, symmetric."
    ]
    assert (
        reader.about()["held_out_style"] == "openmoji"
        and "openmoji" not in reader.about()["packages"]
    )


def test_families_stay_on_one_side():
    assert family("man cook") == family("woman cook") == "cook"
    assert (
        family("one o’clock") == family("ten-thirty") == "hour"
        and family("person") == "a human being"
    )
    assert family("left arrow") == family("right arrow")
    shares = np.unique([split_of(f"thing {n}") for n in range(3000)], return_counts=True)
    assert dict(zip(*shares, strict=True)) == pytest.approx(
        {"train": 2250, "validation": 300, "reference": 450}, rel=0.15
    )


def test_the_import_holds_out_concepts_and_a_style(packages, tmp_path, capsys):
    def command(*words):
        code = main([str(packages), str(tmp_path / "to"), "--size", "16", "--json", *words])
        return code, json.loads(capsys.readouterr().out.strip().splitlines()[-1])

    code, facts = command()
    ledger = facts["concepts"]["ledger"]
    assert (
        code == 0 and ledger["given"] == ledger["kept"] + ledger["dropped"] + ledger["quarantined"]
    )
    assert facts["concepts"]["count"] == ledger["kept"]
    names = {}
    for folder in (tmp_path / "to", tmp_path / "to_style"):
        for split in ("train", "validation", "reference"):
            source = FolderSource(folder, split)
            index = np.arange(len(source))
            names.setdefault(split, set()).update(
                map(family, source.prompts(Chooser(("short",)), index))
            )
            styles = {
                one.split("style of ")[1].split(",")[0] for one in source.prompts(Chooser(), index)
            }
            assert styles <= ({"Openmoji"} if folder.name == "to_style" else {"Noto", "Twemoji"})
    assert not names["train"] & names["reference"] and not names["train"] & names["validation"]
    card = json.loads((tmp_path / "to" / "card.json").read_text())
    assert card["licence"].startswith("noto 1.0.0, MIT") and card["held_out_style"] == "openmoji"
    code, refused = command()
    assert code == 2 and "already" in refused["error"]
    shutil.rmtree(tmp_path / "to_style")
    assert command()[1]["style"]["count"] == facts["style"]["count"], "a kill between"


def test_the_recipe_can_be_read_without_its_packages_and_its_key_asks_for_them(
    tmp_path, monkeypatch
):
    run = recipe()
    assert run.encode.text.path == MINILM and run.data.size == 64
    name = MINILM.removeprefix("pip:")
    monkeypatch.setitem(PACKAGES, name, PACKAGES[name]._replace(module="not_there"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="emoji_64|not installed"):
        key(put(run, "data.source.path", "emoji_64"), 0)
    with pytest.raises(BadInput, match="not installed"):
        run.encode.text.hashes()


def test_colours_and_layout_are_what_is_there():
    swatches = {
        "red": (220, 30, 30),
        "orange": (240, 140, 20),
        "yellow": (250, 220, 40),
        "green": (40, 160, 60),
        "turquoise": (60, 200, 210),
        "blue": (30, 60, 220),
        "purple": (110, 40, 180),
        "pink": (240, 90, 180),
        "brown": (110, 60, 20),
        "black": (20, 20, 20),
        "white": (250, 250, 250),
        "grey": (128, 128, 130),
    }
    assert colour_names(np.array(list(swatches.values()), np.uint8)).tolist() == list(swatches)
    picture = np.zeros((20, 20, 4), np.uint8)
    picture[4:10, 1:19] = (220, 30, 30, 255)
    picture[4:10, 14:19] = (30, 60, 220, 255)
    facts = measure(picture)
    assert facts.colours == ("red", "blue") and facts.mostly
    assert (facts.size, facts.shape, facts.symmetric) == ("small", "wide", True)
    picture[10:19, 1:6] = (250, 250, 250, 255)
    assert not measure(picture).symmetric
    with pytest.raises(ValueError, match="empty"):
        measure(np.zeros((4, 4, 4), np.uint8))
    assert medium("cat", ()) == "cat" and "one of" not in long("cat", (), "Noto", "", facts)


def test_a_real_renderer_draws():
    pytest.importorskip("resvg_py", reason="pip install resvg-py draws SVG")
    icons = IconSet(
        "noto",
        "Noto",
        "MIT",
        "1",
        {"x": {"body": '<path fill="#f00" d="M0 0h8v16h-8z"/>', "width": 8}},
        (0, 0, 16, 16),
        {},
    )
    drawn = draw(icons, "x", 32)
    assert drawn[16, 16].tolist() == [255, 0, 0, 255] and drawn[16, [2, 29], 3].max() == 0, (
        "centred in a square"
    )
    icons.icons["x"]["body"] = "<path"
    with pytest.raises(ValueError, match="cannot be drawn"):
        draw(icons, "x", 32)
