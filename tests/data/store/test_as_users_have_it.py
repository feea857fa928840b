"""Import, as users have it: several languages, pictures that are not square, drawings, other
people's shards, refusals."""

import io
import json
import os
import shlex
import struct
import sys

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli.train import train_command
from fulcrum.data.readers.pictures import colour_named, decode, drawn, pad
from fulcrum.data.readers.reader import Fields, open_given
from fulcrum.data.stores.finish_import import import_summary, run_import
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import PictureStore, read_about
from fulcrum.data.stores.verify import check
from fulcrum.levers.catalog import read_phrase
from fulcrum.spec.errors import BadInput


def quiet(text):
    pass


def imported(folder, to, fields=None, **options):
    options = {"size": 16, "hold_out": 0.0, **options}
    return run_import(
        open_given(str(folder), *([fields] if fields else [])), to, Options(**options), quiet
    )


def test_several_languages_are_noticed(make, tmp_path):
    folder = make.folder(tmp_path / "given", 6)
    (folder / "0002.txt").write_text(
        "A red square is on the left of the picture\nEin rotes Quadrat ist auf der linken Seite"
    )
    (folder / "0003.txt").write_text("ein blaues Quadrat auf dem grauen Grund und ein Stern")
    imported(folder, tmp_path / "store")
    facts, lines = import_summary(tmp_path / "store")
    assert any(
        "1 captions hold several languages, such as that of 0002.png" in line for line in lines
    )
    assert any("in several languages (en " in line and "de 2" in line for line in lines)
    command = (
        f"fulcrum data filter {tmp_path / 'store'} {tmp_path / 'store'}_en --language en --held-out"
    )
    assert any(line.endswith(command) for line in lines), "it can be run as it stands"
    plain = make.folder(tmp_path / "plain", 6)
    imported(plain, tmp_path / "one")
    assert not any("language" in line for line in import_summary(tmp_path / "one")[1])


def test_a_picture_is_padded_whole(make, tmp_path):
    wide = Image.fromarray(np.full((20, 40, 3), (200, 30, 30), np.uint8))
    fitted = pad(wide, (16, 16), (0, 0, 255))
    assert fitted.changes == {"resized", "padded"} and fitted.image.getpixel((8, 8)) == (
        200,
        30,
        30,
    )
    assert fitted.image.getpixel((8, 1)) == (0, 0, 255) == fitted.image.getpixel((8, 14))
    assert pad(wide.resize((16, 16)), (16, 16)).changes == frozenset()
    assert pad(wide.resize((8, 4)), (16, 16)).changes == {"enlarged", "padded"}
    folder = make.folder(tmp_path / "given", 4, (40, 20))
    about = imported(folder, tmp_path / "store", pad=True, background="#0000ff")
    ledger = json.loads((tmp_path / "store" / "ledger.json").read_text())
    assert ledger["changes"]["padded"] == 4 and ledger["changes"]["cropped"] == 0
    assert ledger["buckets"]["16x16"]["cropped_away"] == 0.0 and about["options"]["pad"]
    assert (
        PictureStore(tmp_path / "store").picture(0)[:, 0, :] == np.array([[0], [0], [255]])
    ).all()
    geometry = FolderSource(tmp_path / "store", "train").geometry(np.arange(4))
    assert (geometry == [20, 40, 0, 0]).all(), "nothing was cut away"


def test_what_is_see_through_shows_the_background():
    stream = io.BytesIO()
    Image.new("RGBA", (16, 16), (255, 0, 0, 0)).save(stream, "PNG")
    assert decode(stream.getvalue(), (0, 255, 0)).image.getpixel((3, 3)) == (0, 255, 0)
    with pytest.raises(BadInput, match="no colour is called 'bleu'"):
        colour_named("bleu")
    with pytest.raises(BadInput, match="no colour"):
        Options(background="bleu").checked()


def test_the_refusal_names_enlarge_and_leaves_nothing(make, tmp_path):
    folder = make.folder(tmp_path / "given", 3, (10, 10))
    with pytest.raises(BadInput, match="nothing was kept: 3 smaller than wanted") as refusal:
        imported(folder, tmp_path / "store")
    assert "--enlarge" in refusal.value.hint and sorted(one.name for one in tmp_path.iterdir()) == [
        "given"
    ]
    imported(folder, tmp_path / "store", enlarge=True)
    make.folder(folder, 1, (20, 20), first=9)
    imported(folder, tmp_path / "some")
    assert any("--enlarge keeps them" in line for line in import_summary(tmp_path / "some")[1])


def test_a_refused_import_does_not_block_the_next(make, tmp_path):
    """Stopped at a bad sample after some parts: the same command goes on, any other begins anew."""
    folder = make.folder(tmp_path / "given", 9)
    (folder / "0007.txt").write_text("")
    for size in (16, 8):  # the second has other settings than what the first left behind
        with pytest.raises(BadInput, match="0007.png: its .txt is empty"):
            imported(folder, tmp_path / "store", shard=3, size=size)
    assert (tmp_path / "store.partial" / "part-00001.jsonl").exists()
    lines = []
    (folder / "0007.txt").write_text("mended")
    run_import(
        open_given(str(folder)),
        tmp_path / "store",
        Options(size=8, hold_out=0.0, shard=3),
        lines.append,
    )
    assert any("going on after 6" in line for line in lines) and check(tmp_path / "store")["sound"]
    assert not list((tmp_path / "store").glob("refused"))
    with pytest.raises(BadInput, match="its .txt is empty"):
        (folder / "0001.txt").write_text("")
        imported(folder, tmp_path / "early", shard=3)
    assert not (tmp_path / "early.partial").exists(), "nothing was done, so nothing is left"


def test_a_source_that_changed_is_imported_anew_the_second_time(make, tmp_path):
    folder = make.folder(tmp_path / "given", 9)
    (folder / "0007.txt").write_text("")
    with pytest.raises(BadInput):
        imported(folder, tmp_path / "store", shard=3)
    (folder / "0001.txt").write_text("another caption")
    (folder / "0007.txt").write_text("mended")
    with pytest.raises(BadInput, match="source has changed"):
        imported(folder, tmp_path / "store", shard=3)
    assert imported(folder, tmp_path / "store", shard=3)["count"] == 9


def test_a_drawing_beside_its_caption_is_drawn_or_named(make, tmp_path, monkeypatch):
    folder = make.folder(tmp_path / "given", 2)
    circle = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40"><circle cx="20" cy="20" r="18"'
        ' fill="#f00"/></svg>'
    )
    (folder / "logo.svg").write_text(circle)
    (folder / "logo.txt").write_text("a red circle")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    (named,) = (one for one in open_given(str(folder)) if one.name == "logo.svg")
    assert (
        named.fault.startswith("an SVG drawing, which needs a renderer") and "[svg]" in named.fault
    )
    monkeypatch.undo()
    pytest.importorskip("resvg_py")
    (given,) = (one for one in open_given(str(folder)) if one.name == "logo.svg")
    picture = decode(given.data)
    assert (
        not given.fault
        and picture.image.getpixel((512, 512)) == (255, 0, 0)
        and given.captions == {"long": ["a red circle"]}
    )
    assert picture.image.getpixel((3, 3)) == (255, 255, 255)
    for bad in (
        '<image href="/etc/passwd"/>',
        '<style>@import "x"</style>',
        '<use href="http://x/y"/>',
    ):
        with pytest.raises(ValueError, match="points outside itself"):
            drawn(circle.replace("</svg>", f"{bad}</svg>").encode())
    for bad, why in (
        ("<svg", "does not state its size"),
        (circle.replace("0 0 40 40", "0 0 1 99"), "too long and thin"),
        (circle.replace("</svg>", '<use href="#a"/>' * 25 + "</svg>"), "more than 24 times"),
        (circle.replace("</svg>", ""), "cannot be drawn"),
    ):
        with pytest.raises(ValueError, match=why):
            drawn(bad.encode())
    tall = decode(drawn(circle.replace("0 0 40 40", "0 0 20 40").encode()))
    assert tall.image.size == (512, 1024)


@pytest.mark.parametrize(
    ("captions", "settings"),
    [
        (("long",), ["data.source", "data.size"]),
        (("title",), ["data.source", "data.size", "data.caption", "sample.prompts"]),
        (("title", "alt"), ["data.source", "data.size", "data.caption", "sample.prompts"]),
    ],
)
def test_the_printed_command_works_for_these_captions(make, tmp_path, captions, settings):
    """Its words are a run that reads the captions that were imported, in a folder whose name wants
    quoting."""
    folder = make.folder(tmp_path / "given", 12)
    for path in folder.glob("*.txt"):
        text = path.read_text()
        path.with_suffix(".json").write_text(
            json.dumps({"captions": dict.fromkeys(captions, text)})
        )
        path.unlink()
    store = tmp_path / "it's here"
    imported(folder, store, hold_out=0.2)
    (line,) = train_command(store)
    words = shlex.split(line.removeprefix("train on it: "))
    assert words[:3] == ["fulcrum", "train", "pocket"] and words[3::2] == ["--set"] * len(settings)
    assert [word.split("=")[0] for word in words[4::2]] == settings
    run = read_phrase(words[2], (), words[4::2], None)[0].run
    chooser = run.data.caption.build(None)
    source = FolderSource(run.data.source.path)
    assert source.prompts(chooser, np.arange(3)) == [
        make.caption(int(source.store.name(int(row))[:4])) for row in source.numbers[:3]
    ]
    assert run.sample.prompts.caption_names() == run.data.caption.caption_names()


def test_words_that_the_embedded_encoder_cannot_read_get_another(make, tmp_path):
    folder = make.folder(tmp_path / "given", 6)
    for path in folder.glob("*.txt"):
        path.write_text("a marmalade cat stretches upon granny's quilted eiderdown")
    imported(folder, tmp_path / "store")
    line, note, *_ = train_command(tmp_path / "store")
    assert "encode.text=pretrained_text(path=" in line and "does not know" in note


def write_mds(folder, rows, names, encodings, sizes):
    """As MosaicML's writer lays a shard out: count, bounds, description, samples."""
    folder.mkdir(parents=True)
    config, samples = json.dumps({"format": "mds"}).encode(), []
    for row in rows:
        cells = [row[name] for name in names]
        head = b"".join(
            struct.pack("<I", len(cell))
            for cell, size in zip(cells, sizes, strict=True)
            if size is None
        )
        samples.append(head + b"".join(cells))
    first = 4 + 4 * (len(samples) + 1) + len(config)
    bounds = np.cumsum([first, *map(len, samples)]).astype("<u4")
    (folder / "shard.00000.mds").write_bytes(
        struct.pack("<I", len(samples)) + bounds.tobytes() + config + b"".join(samples)
    )
    shard = {
        "format": "mds",
        "version": 2,
        "samples": len(samples),
        "raw_data": {"basename": "shard.00000.mds"},
    }
    shard |= {
        "column_names": names,
        "column_encodings": encodings,
        "column_sizes": sizes,
        "zip_data": None,
        "compression": None,
    }
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return folder


def mds_rows(make, count):
    for number in range(count):
        yield {
            "caption": make.caption(number).encode(),
            "image": make.picture(number),
            "key": struct.pack("<q", number),
            "extra": b"never unpickled",
        }


COLUMNS = (
    ["caption", "image", "key", "extra"],
    ["str", "bytes", "int", "pkl"],
    [None, None, 8, None],
)


def test_mds_shards(make, tmp_path):
    write_mds(tmp_path / "given" / "train", list(mds_rows(make, 6)), *COLUMNS)
    write_mds(tmp_path / "given" / "val", list(mds_rows(make, 8))[6:], *COLUMNS)
    about = imported(tmp_path / "given", tmp_path / "store")
    assert about["kind"] == "MDS shards" and about["splits"] == {
        "train": 6,
        "validation": 2,
        "reference": 0,
    }
    store = PictureStore(tmp_path / "store")
    assert {tuple(store.captions(row)["long"]) for row in range(6)} == {
        (make.caption(row),) for row in range(6)
    }
    path = tmp_path / "given" / "train" / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:-200])
    samples = list(open_given(str(tmp_path / "given")))
    assert "cut off" in samples[5].fault and not any(one.fault for one in samples[:5])
    path.rename(path.with_suffix(".gone"))
    with pytest.raises(BadInput, match="there is no .*shard.00000.mds"):
        open_given(str(tmp_path / "given"))


@pytest.mark.parametrize(
    "field, value",
    [
        ("samples", float("inf")),
        ("column_names", [["image"], *COLUMNS[0][1:]]),
        ("column_encodings", [None, *COLUMNS[1][1:]]),
        ("column_sizes", [["x"], *COLUMNS[2][1:]]),
        ("column_sizes", [float("inf"), *COLUMNS[2][1:]]),
        ("column_sizes", [-8, *COLUMNS[2][1:]]),
    ],
)
def test_an_mds_index_with_other_things_in_it_is_refused(make, tmp_path, field, value):
    folder = write_mds(tmp_path / "given", list(mds_rows(make, 2)), *COLUMNS)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0][field] = value
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="describes a shard that is no MDS shard"):
        open_given(str(folder))


@pytest.mark.timeout(20)
def test_an_index_that_is_a_pipe_keeps_nobody_waiting(make, tmp_path):
    os.mkfifo(tmp_path / "index.json")
    (tmp_path / "a.png").write_bytes(make.picture(0))
    (tmp_path / "a.txt").write_text("a picture")
    assert "a.png" in [given.name for given in open_given(str(tmp_path)) if not given.fault]


def test_mds_that_leads_elsewhere_is_refused(make, tmp_path):
    folder = write_mds(tmp_path / "given", list(mds_rows(make, 2)), *COLUMNS)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["raw_data"]["basename"] = "../other.mds"
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="not one of its own"):
        open_given(str(folder))


def test_what_img2dataset_writes(make, tmp_path):
    """Tars with their statistics and tables beside them, and a sample whose page had no caption."""
    folder = tmp_path / "given"
    folder.mkdir()
    for number in range(2):
        members = list(make.img2dataset(range(number * 5, number * 5 + 5)))
        if number:
            members = [one for one in members if one[0] != "000000007.txt"]
            members = [
                (
                    name,
                    data if name != "000000007.json" else b'{"caption": null, "status": "success"}',
                )
                for name, data in members
            ]
        make.tar(folder / f"{number:05d}.tar", members)
        (folder / f"{number:05d}_stats.json").write_text('{"count": 5}')
        (folder / f"{number:05d}.parquet").write_bytes(b"PAR1")
    about = imported(folder, tmp_path / "store", bad="quarantine")
    assert about["count"] == 9 and about["kind"] == "tar shards"
    assert json.loads((tmp_path / "store" / "ledger.json").read_text())["reasons"] == {
        "no caption": 1
    }
    fields = Fields(captions=(("alt", "caption"),))
    assert imported(folder, tmp_path / "named", fields, bad="quarantine")["captions"] == {"alt": 9}
    assert read_about(tmp_path / "named")["captions"] == {"alt": 9}


@pytest.mark.parametrize(
    "about", ['{"captions": {"a\\ud800": "x"}}', '{"caption": "x", "group": "\\ud800"}']
)
@pytest.mark.parametrize("buckets", [False, True])
def test_half_a_pair_in_a_name_or_a_group_is_a_fault_of_its_sample(make, tmp_path, about, buckets):
    """JSON can spell it, no table of ours can hold it."""
    folder = make.folder(tmp_path / "given", 5)
    (folder / "0003.txt").unlink()
    (folder / "0003.json").write_text(about)
    with pytest.raises(BadInput, match=r"0003\.png: .* is not Unicode: it holds half a pair"):
        imported(folder, tmp_path / "store", buckets=buckets)
    imported(folder, tmp_path / "store", buckets=buckets, bad="quarantine")
    assert check(tmp_path / "store")["sound"] and read_about(tmp_path / "store")["count"] == 4
