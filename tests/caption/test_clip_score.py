"""`--score clip=FOLDER` of the commands that take it: a tiny random CLIP scores every pair, other
folders are refused."""

import json

import numpy as np
import pytest

from fulcrum.cli import main
from fulcrum.data.stores.picture_store import PictureStore, read_about
from fulcrum.measure.store_scores import open_scorer
from tests.caption.tiny_vlms import save_llava
from tests.tiny_clip import save_clip


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return f"clip={save_clip(tmp_path_factory.mktemp('clip') / 'clip')}"


def run(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code, capsys.readouterr()


def own_scores(store, clip, caption):
    """Of every picture by itself."""
    score = open_scorer(clip)
    return np.array(
        [
            score([store.picture(row)], [store.captions(row)[caption][0]])[0]
            for row in range(len(store))
        ],
        np.float64,
    )


def test_data_is_filtered_by_clip(world_store, clip, tmp_path, capsys):
    code, printed = run(
        capsys,
        "data",
        "filter",
        world_store,
        tmp_path / "best",
        "--score",
        clip,
        "--drop",
        0.25,
        "--caption",
        "short",
        "--json",
    )
    assert code == 0, printed.err
    parent, facts = PictureStore(world_store), json.loads(printed.out)
    scores, train = own_scores(parent, clip, "short"), parent.split("train")
    worst = set(
        train[np.argsort(scores[train], kind="stable")[: round(0.25 * len(train))]].tolist()
    )
    left = PictureStore(tmp_path / "best")
    gone = set(range(len(parent))) - {
        [parent.name(row) for row in range(len(parent))].index(left.name(row))
        for row in range(len(left))
    }
    assert gone == worst and facts["count"] == len(parent) - len(worst)
    assert left.about["filter"]["scorer"] == clip


def test_captions_are_scored_by_clip(world_store, clip, tmp_path, capsys):
    words = (
        "caption",
        world_store,
        tmp_path / "new",
        "--model",
        "world",
        "--styles",
        "short",
        "--limit",
        24,
        "--score",
        clip,
    )
    code, printed = run(capsys, *words, "--keep-all", "--json")
    assert code == 0, printed.err
    about = read_about(tmp_path / "new")
    told = about["caption_statistics"]["after"]["recap_short"]
    store = PictureStore(tmp_path / "new")
    passed = [row for row in range(len(store)) if "recap_short" in store.captions(row)]
    score = open_scorer(clip)
    own = [score([store.picture(row)], store.captions(row)["recap_short"])[0] for row in passed]
    assert told["score_mean"] == pytest.approx(float(np.mean(own)), abs=0.05)
    code, printed = run(capsys, *words[:2], tmp_path / "none", *words[3:], "--least-score", 101)
    assert code == 2 and "nothing would be left" in printed.err, "a CLIP score is 100 at most"


def test_an_audit_scores_pairs_by_clip(world_store, clip, capsys):
    code, printed = run(capsys, "audit", world_store, "--score", clip)
    assert code in (0, 3) and "pairs scored by clip=" in printed.out, printed.err


@pytest.mark.parametrize("command", ["filter", "caption", "audit"])
@pytest.mark.parametrize("fault", ["none", "another", "empty", "no tokenizer", "no words"])
def test_other_folders_are_refused_and_nothing_is_left(
    world_store, clip, tmp_path, capsys, fault, command
):
    folder = tmp_path / "folder"
    if fault == "another":
        save_llava(folder)
    elif fault == "empty":
        folder.mkdir()
    elif fault == "no tokenizer":
        save_clip(folder)
        for name in (
            "vocab.json",
            "merges.txt",
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
        ):
            (folder / name).unlink(missing_ok=True)
    scorer = "embedded" if fault == "no words" else f"clip={folder}"
    to = tmp_path / "new"
    words = {
        "filter": (
            "data",
            "filter",
            world_store,
            to,
            "--score",
            scorer,
            "--drop",
            0.5,
            "--caption",
            "short",
        ),
        "caption": ("caption", world_store, to, "--model", "world", "--score", scorer),
        "audit": ("audit", world_store, "--score", scorer),
    }[command]
    code, printed = run(capsys, *words)
    assert code == 2 and "Traceback" not in printed.err, printed.err
    says = {"none": "there is no folder at", "another": "expected 'clip'", "empty": "config.json"}
    assert says.get(fault, "knows no captions") in printed.err
    assert not to.exists() and not list(tmp_path.glob("new*")), "nothing that blocks the next"
