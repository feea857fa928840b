"""Stage levers and the caption filter on a user's own stores: what they put in, what they refuse,
that a run can be."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.data.fillers import FilteredFolder, Folder, MixedStyles, OneStyle
from fulcrum.data.mix import one_shaped
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.derived_store import read_scores, write_scores
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import PictureStore, read_about
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.features.extractor import Extractor
from fulcrum.measure.store_scores import score_rows, scorer_of
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.spec.slots import DataContext
from fulcrum.spec.stage import phases
from fulcrum.training.build import assemble, require_witness
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import train

COLOURS = {"red": (200, 30, 30), "blue": (30, 40, 200), "green": (40, 160, 60)}
TEXT = "a large {} square in the centre"


def imported(folder, count, first=0, lengths=("long", "short"), sizes=((36, 40),), **options):
    """A store of noisy coloured pictures; the number of a picture decides its pixels."""
    given = folder / "given"
    given.mkdir(parents=True)
    for number in range(first, first + count):
        name, colour = list(COLOURS.items())[number % 3]
        width, height = sizes[number % len(sizes)]
        pixels = np.random.default_rng(number).integers(0, 50, (height, width, 3)) + np.array(
            colour
        )
        stream = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(stream, "PNG")
        (given / f"{number:04d}.png").write_bytes(stream.getvalue())
        captions = {"long": TEXT.format(name), "short": name}
        (given / f"{number:04d}.json").write_text(
            json.dumps({one: captions[one] for one in lengths})
        )
    run_import(
        open_given(str(given)),
        folder / "store",
        Options(size=32, hold_out=0.1, **options),
        lambda text: None,
    )
    return folder / "store"


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    home = tmp_path_factory.mktemp("stores")
    return {
        "real": imported(home / "real", 60),
        "synthetic": imported(home / "synthetic", 50, first=1000),
        "curated": imported(home / "curated", 20, first=2000),
        "one length": imported(home / "one", 12, first=3000, lengths=("long",)),
        "shapes": imported(
            home / "shapes", 90, first=4000, sizes=((36, 40), (64, 40)), buckets=True, bucket_step=8
        ),
    }


@pytest.fixture(scope="module")
def tables(stores, tmp_path_factory):
    """A table of scores for two stores: the row's own number, so that the first rows go."""
    tables = {}
    for name in ("real", "shapes"):
        tables[name] = tmp_path_factory.mktemp("scores") / f"{name}.csv"
        about = read_about(stores[name])
        write_scores(tables[name], {row: float(row) for row in range(about["count"])}, about)
    return tables


def trained(tiny, cache, text, base):
    settings = ("budget.images=24", "budget.batch=8", f"data.source=folder(path='{base}')")
    run = tiny(text, *settings)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    require_witness(parse(text, CATALOG, settings).levers, built)
    assert train(built, State(), [], lambda: False).images == 24
    return built


def test_a_curated_end_on_ones_own_pictures(stores, tiny, cache):
    built = trained(
        tiny, cache, f"spark + sft_stage(start=0.6, source='{stores['curated']}')", stores["real"]
    )
    first, last = (phase.run.data for phase in built.phases)
    assert first.source == Folder(path=str(stores["real"])) and last.source == Folder(
        path=str(stores["curated"])
    )
    assert (first.caption, last.caption) == (
        OneStyle(style="long"),
        MixedStyles(long=0.5, medium=0.0, short=0.25),
    )
    curated = PictureStore(stores["curated"])
    assert len(built.feed.source_at(23)) == len(curated.split("train"))
    few = tiny(f"spark + sft_stage(source='{stores['curated']}', count=4)")
    assert phases(few)[-1].run.data.source.count == 4, "after the embedded world too"


def test_synthetic_pictures_of_ones_own_first(stores, tiny, cache):
    text = f"spark + synthetic_then_real(until=0.34, synthetic='{stores['synthetic']}')"
    built = trained(tiny, cache, text, stores["real"])
    assert [phase.run.data.source.path for phase in built.phases] == [
        str(stores[one]) for one in ("synthetic", "real")
    ]


def test_real_pictures_of_ones_own_are_judged_as_the_baseline_is(stores, tiny, cache):
    """Else an arm would be held against other reference pictures than its baseline."""
    text = f"spark + real_data(source='{stores['real']}')"
    run = trained(tiny, cache, text, stores["synthetic"]).run
    assert run.data.source == Folder(path=str(stores["real"]), judged=str(stores["synthetic"]))
    assert run.data.source.held_out("reference", 4).path == str(stores["synthetic"])
    both = f"data.source=folder(path='{stores['synthetic']}', judged='{stores['real']}')"
    assert tiny(text, both).data.source.held_out("reference", 4).path == str(stores["real"])
    keys = {
        key(tiny("spark", setting), 0)
        for setting in (both, f"data.source=folder(path='{stores['synthetic']}')")
    }
    assert len(keys) == 2, "what judges is part of what a run is"


@pytest.mark.parametrize(("name", "drop"), [("real", 0.2), ("real", 0.7), ("shapes", 0.7)])
def test_the_worst_pairs_of_a_store_are_left_out(name, drop, stores, tables, tiny, cache):
    """By the user's own scores; 0.7 is DataComp's dose. Of several shapes the worst of all go,
    whatever their shape."""
    built = trained(
        tiny, cache, f"spark + caption_filter(drop={drop}, scores='{tables[name]}')", stores[name]
    )
    rows = PictureStore(stores[name]).split("train")
    parts = one_shaped(built.feed.source_at(0))
    kept = np.sort(np.concatenate([part.inner.numbers[part.kept] for part in parts]))
    assert kept.tolist() == rows[round(drop * len(rows)) :].tolist() and isinstance(
        built.run.data.source, FilteredFolder
    )
    whole = one_shaped(Folder(path=str(stores[name])).build(DataContext(built.run)))
    picture = parts[0].read(np.array([0])).images
    assert (
        np.array_equal(picture, whole[0].read(parts[0].kept[:1]).images) and not parts[0].has_scenes
    )
    assert built.run.data.source.held_out("reference", 4).path == str(stores[name])
    other = tiny(
        f"spark + caption_filter(drop=0.5, scores='{tables[name]}')",
        f"data.source=folder(path='{stores[name]}')",
    )
    assert key(other, 0) != key(built.run, 0)


@pytest.mark.parametrize("lengths", ["mixed_captions", "mixed_captions(medium=0)"])
def test_captions_of_a_mix_are_those_of_all_its_stores(lengths, stores, tiny):
    both = [
        f"data.source=mix(paths=('{stores['real']}', '{stores[other]}'), weights=(1.0, 1.0))"
        for other in ("curated", "one length")
    ]
    with pytest.raises(BadInput, match="has a caption '(medium|short)'; all have: long"):
        tiny(f"spark + {lengths}", both[1])
    if lengths != "mixed_captions":
        assert tiny(f"spark + {lengths}", both[0]).data.caption.caption_names() == ("long", "short")


def test_the_world_is_filtered_though_other_pictures_come_first(stores, tiny, cache):
    text = (
        "spark + caption_filter + synthetic_then_real(until=0.34,"
        f" synthetic='{stores['synthetic']}')"
    )
    run = tiny(text, "budget.images=24", "budget.batch=8")
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    require_witness(parse(text, CATALOG).levers, built)
    assert len(built.feed.source_at(23)) < run.data.source.count


def test_other_scores_are_another_run(stores, tables, tmp_path, tiny):
    same, other = (tmp_path / name for name in ("same.csv", "other.csv"))
    same.write_bytes(tables["real"].read_bytes())
    other.write_text(tables["real"].read_text().replace("\n3,3\n", "\n3,99\n"))
    keys = [
        key(
            tiny(
                f"spark + caption_filter(scores='{path}')",
                f"data.source=folder(path='{stores['real']}')",
            ),
            0,
        )
        for path in (tables["real"], same, other)
    ]
    assert keys[0] == keys[1] != keys[2], "what they hold, not where they lie"


@pytest.mark.parametrize(
    ("text", "base", "says"),
    [
        ("sft_stage", "real", "sft_stage(source='FOLDER')"),
        ("sft_stage(source='{one length}')", "real", "write captions=kept"),
        ("sft_stage(source='/no/such')", "real", "no imported data set"),
        ("synthetic_then_real", "real", "synthetic_then_real(synthetic='FOLDER')"),
        ("synthetic_then_real(synthetic='{real}')", "real", "are the run's own"),
        ("real_data", "real", "real_data(source='FOLDER')"),
        ("real_data(source='{real}')", None, "leave `source` out"),
        ("mixed_captions", "real", "has a caption 'medium'; all have: long, short"),
        (
            "mixed_captions(medium=0) @ (0.5, 1)",
            "one length",
            "has a caption 'short'; all have: long",
        ),
        (
            "short_captions + sft_stage(source='{one length}', captions=kept)",
            "real",
            "has a caption 'short'",
        ),
        ("caption_filter", "real", "embedded scorer reads the embedded world only"),
        ("caption_filter(scores='{scores}')", None, "leave `scores` out"),
        ("caption_filter(scores='{scores}')", "synthetic", "scores of another store"),
        ("caption_filter(scores='/no/such.csv')", "real", "cannot be read"),
        ("caption_filter(scores='{scores}', drop=0.001)", "real", "none or all"),
    ],
)
def test_what_a_store_cannot_give_is_refused_when_the_phrase_is_read(
    text, base, says, stores, tables, tiny
):
    text = text.format(**stores, scores=tables["real"])
    settings = () if base is None else (f"data.source=folder(path='{stores[base]}')",)
    with pytest.raises(BadInput) as refused:
        tiny(f"spark + {text}", *settings)
    assert says in str(refused.value), str(refused.value)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("0,1\n1,2", "does not begin with"),
        ("row,score\n0,1\n0,2", "scored twice"),
        ("row,score\n0,nan", "line 2"),
        ("row,score\n99,1", "from 0 to 2"),
        ("row,score\n0,1,2", "line 2"),
        ("row,score\nfirst,1", "line 2"),
        ("# store other\nrow,score\n0,1", "another store"),
    ],
)
def test_a_doubtful_table_is_refused(table, says, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(table)
    with pytest.raises(BadInput, match=says):
        read_scores(path, 3, "content")


def test_a_picture_without_a_score_is_named(stores, tmp_path, tiny):
    path, about = tmp_path / "scores.csv", read_about(stores["real"])
    write_scores(path, dict.fromkeys(range(about["count"] - 1), 1.0), about)
    path.write_text(
        "".join(line for line in path.read_text().splitlines(True) if not line.startswith("1"))
    )
    with pytest.raises(BadInput, match="no score for .* training pictures, such as row 1"):
        tiny(
            f"spark + caption_filter(scores='{path}')",
            f"data.source=folder(path='{stores['real']}')",
        )


def test_a_table_is_written_by_a_network_that_knows_words(stores, tmp_path):
    """Every training picture with its own caption, in shapes of all kinds."""

    def redness(images, captions):
        red = images[:, 0].float().mean(dim=(1, 2))
        return red if all("square" in text for text in captions) else red * 0

    seer = Extractor(
        "seer",
        "hash",
        "none",
        "any",
        1,
        lambda images: images.float().mean(dim=(1, 2, 3))[:, None],
        redness,
    )
    store, lines = PictureStore(stores["shapes"]), []
    train = store.split("train").tolist()
    fits = score_rows(store, scorer_of(seer), "long", False, lines.append)
    assert np.flatnonzero(np.isfinite(fits)).tolist() == train
    for row in train[::9]:
        assert fits[row] == pytest.approx(store.picture(row)[0].mean(), rel=1e-4)
    short = score_rows(store, scorer_of(seer), "short", False, lines.append)
    assert set(short[train]) == {0.0}
    scores = {row: fits[row] for row in train}
    write_scores(tmp_path / "scores.csv", scores, store.about)
    read = read_scores(tmp_path / "scores.csv", len(store), store.about["content"])
    assert {row: read[row] for row in scores} == pytest.approx(scores, rel=1e-5)
    with pytest.raises(BadInput, match="knows no captions"):
        scorer_of(seer._replace(score=None))
    with pytest.raises(BadInput, match="caption 'title'"):
        score_rows(store, scorer_of(seer), "title", False, lines.append)


def test_the_curated_stage_of_the_world_has_captions_of_all_lengths(tiny, cache):
    """As published; kept ones are a setting."""
    run = tiny("spark + sft_stage(start=0.34)")
    assert [phase.run.data.caption for phase in phases(run)] == [
        OneStyle(style="long"),
        MixedStyles(),
    ]
    words = [len(text.split()) for text in Feed(run, 0, cache).prompts_at(16, 32)]
    assert min(words) <= 6 and max(words) >= 15
    assert phases(tiny("spark + sft_stage(captions=kept)"))[-1].run.data.caption == OneStyle(
        style="long"
    )
    both = tiny("spark + mixed_captions @ (0.5, 1) + sft_stage")
    assert both == tiny("spark + sft_stage + mixed_captions @ (0.5, 1)"), (
        "the same value twice is no conflict"
    )
    with pytest.raises(BadInput, match="data.caption two values at the same time"):
        tiny("spark + mixed_captions(short=1) @ (0.5, 1) + sft_stage")


def test_a_network_without_words_writes_no_table(stores, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(
            [
                "data",
                "score",
                str(stores["real"]),
                str(tmp_path / "scores.csv"),
                "--features",
                "embedded",
            ]
        )
    assert end.value.code == BadInput.exit_code and not (tmp_path / "scores.csv").exists()
    assert "knows no captions" in capsys.readouterr().err
