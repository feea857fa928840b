"""The shipped pair score: tells planted wrong captions from true ones, and is computed once per
source."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import fulcrum.networks
from fulcrum.data.captions import Chooser
from fulcrum.data.mix import FilteredSource, keep_best
from fulcrum.data.source import WorldSource, readings
from fulcrum.files.shipped import AssetError, card
from fulcrum.networks.captioner import Scorer, load_score, load_scorer
from fulcrum.networks.codec import load_codec
from fulcrum.networks.rows import Cache, Encoder
from fulcrum.networks.teacher import load_teacher
from fulcrum.networks.text import load_text
from tools.assets.fit_score import auc

SOURCE = WorldSource("validation", "real", 32, 250, mislabelled=0.2)


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return load_scorer()


def scored(scorer: Scorer, source: WorldSource, style: str) -> torch.Tensor:
    ids = np.arange(len(source))
    return scorer.score(
        torch.from_numpy(source.read(ids).images), source.prompts(Chooser((style,)), ids)
    )


@pytest.mark.parametrize("domain", ["real", "synthetic"])
@pytest.mark.parametrize("style, least", [("long", 0.98), ("medium", 0.98), ("short", 0.88)])
def test_planted_pairs_score_lower(scorer: Scorer, domain: str, style: str, least: float) -> None:
    """A short caption says one clause, which another picture may fit by chance: it cannot reach
    one."""
    source = WorldSource("validation", domain, 32, 250, mislabelled=0.2)
    found, planted = scored(scorer, source, style), torch.from_numpy(source.planted(np.arange(250)))
    assert auc(found[~planted], found[planted]) > least


def test_a_smaller_world_and_another_size_are_scored_too(scorer: Scorer) -> None:
    for size, most in ((32, 1), (64, 2), (16, 2)):
        source = WorldSource("validation", "real", size, 200, most, mislabelled=0.3)
        found, planted = (
            scored(scorer, source, "long"),
            torch.from_numpy(source.planted(np.arange(200))),
        )
        assert auc(found[~planted], found[planted]) > 0.8, (size, most)


def test_the_area_under_the_curve() -> None:
    one, two = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0, 3.0])
    assert auc(one, two) == pytest.approx(5.5 / 6) and auc(two, one) == pytest.approx(0.5 / 6)
    assert auc(one, one) == pytest.approx(0.5)


def test_scores_are_computed_once_and_filter_the_planted(tmp_path: Path) -> None:
    said: list[str] = []
    cache, chooser = Cache(tmp_path), Chooser()
    scores = cache.scores(SOURCE, chooser, say=said.append)
    assert (
        scores.shape == (250,)
        and scores.dtype == np.float32
        and said[-1].startswith("encoding scores: 250 of 250")
    )
    again: list[str] = []
    assert np.array_equal(cache.scores(SOURCE, chooser, say=again.append), scores) and not again
    cache.scores(SOURCE, Chooser(("short",)), say=again.append)
    assert again, "other captions are other pairs"
    planted = SOURCE.planted(np.arange(250))
    left = FilteredSource(SOURCE, keep_best(scores, planted.mean()))
    assert left.planted(np.arange(len(left))).sum() <= 0.1 * planted.sum(), (
        "nine of ten wrong captions are gone"
    )


def test_a_filtered_source_reads_what_its_inner_source_has_encoded(tmp_path: Path) -> None:
    """Nothing is encoded twice, and a sample has the same latent, tokens and prompt with and
    without the filter."""
    inner = WorldSource("validation", "real", 32, 60, mislabelled=0.2)
    cache, chooser, kept = (
        Cache(tmp_path),
        Chooser(("long", "short"), (1.0, 1.0)),
        np.array([2, 3, 30, 59]),
    )
    codec, text, teacher = load_codec(), load_text(), load_teacher()
    whole, whole_tokens = (
        Encoder(inner, chooser, 0, codec, text, cache),
        cache.tokens(inner, teacher),
    )
    said: list[str] = []
    filtered = FilteredSource(inner, kept)
    part = Encoder(filtered, chooser, 0, codec, text, cache, said.append)
    tokens = cache.tokens(filtered, teacher, said.append)
    rows = np.array([3, 0, 1])
    numbers = readings(0, 5, 3)
    found, wanted = part.stored(rows, numbers), whole.stored(kept[rows], numbers)
    assert not said and len(part.latents) == len(part.texts) == len(tokens) == 4
    assert torch.equal(found.x0, wanted.x0) and torch.equal(
        tokens.stored(rows), whole_tokens.stored(kept[rows])
    )
    assert torch.equal(found.text.emb, wanted.text.emb) and torch.equal(
        found.text.mask, wanted.text.mask
    )
    assert found.ids.tolist() == [3, 0, 1]
    emb, mask = load_text().encode(part.prompts_at(0, 4), part.texts.longest)
    assert torch.equal(mask, part.at(0, 4).text.mask), (
        "the prompts are those of the cached embeddings"
    )
    torch.testing.assert_close(emb, part.at(0, 4).text.emb, atol=4e-3, rtol=0)


def test_several_styles_are_scored_each_and_weighed(tmp_path: Path) -> None:
    """Which caption a reading will get is not known when pairs are chosen."""
    cache, mixed = Cache(tmp_path), Chooser(("long", "medium", "short"), (3.0, 0.0, 1.0))
    long, short = (cache.scores(SOURCE, Chooser((style,))) for style in ("long", "short"))
    np.testing.assert_allclose(cache.scores(SOURCE, mixed), 0.75 * long + 0.25 * short, rtol=1e-5)


def test_one_row_does_not_depend_on_its_batch(scorer: Scorer) -> None:
    ids = np.arange(40)
    images, prompts = torch.from_numpy(SOURCE.read(ids).images), SOURCE.prompts(Chooser(), ids)
    whole = scorer.score(images, prompts)
    torch.testing.assert_close(
        scorer.score(images[7:9], prompts[7:9]), whole[7:9], atol=1e-4, rtol=0
    )
    with pytest.raises(ValueError, match="one prompt per picture"):
        scorer.score(images, prompts[:3])


def test_it_knows_the_parts_that_it_was_trained_on(tmp_path: Path) -> None:
    folder = Path(fulcrum.networks.__file__).parent / "assets"
    shutil.copy(folder / "score.safetensors", tmp_path)
    told = card("score")
    assert told["bytes"] < 500_000 and set(told["config"]["reads"]) == {"teacher", "text"}
    told["config"]["reads"]["text"] = "another"
    (tmp_path / "score.json").write_text(json.dumps(told))
    with pytest.raises(AssetError, match="trained on another text(.|\n)*--only score"):
        load_score(folder=tmp_path)
