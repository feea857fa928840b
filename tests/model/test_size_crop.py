"""SDXL's size and crop conditioning: the formula, where the numbers come from, what is asked for at
sampling, refusals."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from fulcrum.data.fillers import Folder, Mix, World
from fulcrum.data.mix import FilteredSource
from fulcrum.data.readers.reader import open_given
from fulcrum.data.source import WorldSource
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.importing import Options
from fulcrum.data.world.scene import render
from fulcrum.levers.model import SizeCropCondition
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.run import System
from fulcrum.spec.slots import SourceFiller
from fulcrum.training.build import assemble, build
from fulcrum.training.feed import Feed
from fulcrum.training.model.transformer import SizeCropIn
from fulcrum.training.painter import Painter

CROPS = "data.source.crop=0.25"
GIVEN = ((60, 40), (40, 64), (32, 32), (96, 48))  # width and height


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """An import of pictures of several sizes, square, and one with buckets."""
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "given").mkdir()
    for number in range(40):
        width, height = GIVEN[number % 4]
        pixels = np.random.default_rng(number).integers(0, 255, (height, width, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "given" / f"{number:04d}.png")
        (folder / "given" / f"{number:04d}.txt").write_text("a large red square in the centre")
    for name, buckets in (("square", False), ("shaped", True)):
        run_import(
            open_given(str(folder / "given")),
            folder / name,
            Options(size=32, buckets=buckets),
            lambda _: None,
        )
    return folder


def sinusoid(value: float) -> list[float]:
    """256 numbers of one: cosines of 128 frequencies from 1 down to 1/10,000, then their sines."""
    angles = [value * math.exp(-math.log(10_000) * step / 128) for step in range(128)]
    return [math.cos(angle) for angle in angles] + [math.sin(angle) for angle in angles]


@torch.no_grad()
def test_the_vector_is_sdxls_formula():
    """Sinusoids of every number one after the other, a linear, SiLU, a linear."""
    part = SizeCropIn(12, torch.float32, stride=4)
    told = torch.tensor([[480.0, 640.0, 0.0, 64.0], [32.0, 32.0, 3.0, 0.0]])
    expected = []
    for numbers in told.tolist():
        whole = torch.tensor([one for number in numbers for one in sinusoid(number)])  # (1024,)
        hidden = part.mlp.in_layer.weight @ whole + part.mlp.in_layer.bias
        hidden = hidden / (1 + torch.exp(-hidden))
        expected.append(part.mlp.out_layer.weight @ hidden + part.mlp.out_layer.bias)
    found = part(torch.zeros(2, 8, 8, 8), torch.zeros(2), told)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-4)
    # nothing told: a whole picture of its own size
    whole = part(torch.zeros(2, 8, 6, 10), torch.zeros(2), None)
    torch.testing.assert_close(
        whole,
        part(torch.zeros(2, 8, 1, 1), torch.zeros(2), torch.tensor([[24.0, 40.0, 0.0, 0.0]] * 2)),
    )


def test_it_is_added_to_the_time_vector_and_reaches_the_prediction(tiny, cache):
    run = tiny("spark + size_crop_condition", CROPS)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    model = built.step.backbone
    batch, draw = built.feed.at(0)
    with torch.no_grad():
        added = model.own_condition(batch.x0, draw.t, batch.geometry)
        plain = model.condition(batch.x0, draw.t, batch.geometry) - added
        torch.testing.assert_close(
            plain,
            model.condition(batch.x0, draw.t, batch.geometry + 7)
            - model.own_condition(batch.x0, draw.t, batch.geometry + 7),
            atol=1e-5,
            rtol=1e-4,
        )
        for parameter in model.parameters():  # gates begin shut: open them
            parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(parameter.numel()))
        one, other = (
            built.step.look(batch._replace(geometry=told), draw).v
            for told in (batch.geometry, None)
        )
    assert not torch.allclose(one, other, atol=1e-4)


def test_the_world_crops_where_it_is_asked_to():
    source = WorldSource("train", "real", 32, 64, crop=0.25)
    index = np.arange(64)
    sides, again, tops, lefts = source.geometry(index).T.astype(int)
    assert (
        (sides == again).all() and sides.min() == 32 and sides.max() == 43 and len(set(sides)) == 12
    )
    assert (
        (tops >= 0).all()
        and (tops <= sides - 32).all()
        and (lefts <= sides - 32).all()
        and (tops != lefts).any()
    )
    assert (source.geometry(index[5:7]) == source.geometry(index)[5:7]).all()  # keyed by the sample
    images = source.read(index).images
    for number in (0, 1, 9, 40):
        whole = render(source.scenes(index[number : number + 1]), sides[number], "real")[0]
        part = whole[:, tops[number] : tops[number] + 32, lefts[number] : lefts[number] + 32]
        assert (images[number] == part).all()
    plain = WorldSource("train", "real", 32, 64)
    assert (plain.geometry(index) == (32, 32, 0, 0)).all()
    assert (
        plain.fingerprint() != source.fingerprint() and (plain.read(index).images != images).any()
    )
    kept = FilteredSource(source, np.array([3, 9, 40]))
    assert (kept.geometry(np.array([2, 0])) == source.geometry(np.array([40, 3]))).all()
    assert World(crop=0.25).held_out("reference", 8).crop == 0  # judged whole


@pytest.mark.parametrize("size", [32, 16])
def test_a_store_tells_what_the_import_cut(stores, size):
    """60 x 40 to a square of 32: the 40 x 40 in the middle, 10 px from the left, which are 8 of the
    32 px."""
    source = FolderSource(stores / "square", "train", size)
    told = source.geometry(np.arange(len(source)))
    expected = {
        (40, 60): (0, 10 * size / 40),
        (64, 40): (12 * size / 40, 0),
        (32, 32): (0, 0),
        (48, 96): (0, 24 * size / 48),
    }
    assert {tuple(row[:2]) for row in told} == set(expected)
    assert all(row[2:] == pytest.approx(expected[tuple(row[:2])]) for row in told.tolist())


def test_a_store_of_several_shapes_and_a_mix_tell_it_too(stores, tiny, cache):
    run = put(
        tiny("spark + size_crop_condition", CROPS),
        "data.source",
        Folder(path=str(stores / "shaped")),
    )
    feed = Feed(run, 0, cache)
    seen = set()
    for at in range(0, 48, 8):
        batch = feed.at(at)[0]
        parts = feed.source_at(at).sources
        shapes = {part.shape for part in parts}
        assert batch.geometry.shape == (8, 4) and len(shapes) > 1
        seen |= {tuple(row) for row in batch.geometry.tolist()}
        assert torch.equal(
            torch.cat([feed.at(at, 3)[0].geometry, feed.at(at + 3, 5)[0].geometry]), batch.geometry
        )
    assert len({row[:2] for row in seen}) > 2
    mixed = Mix(paths=(str(stores / "square"), str(stores / "shaped")), weights=(1.0, 1.0))
    assert mixed.geometry_missing() is None and mixed.geometry_varies()


def test_other_runs_carry_no_numbers(tiny, cache):
    assert Feed(tiny(), 0, cache).at(0)[0].geometry is None


def test_a_whole_picture_is_asked_for_at_sampling(tiny, cache):
    run = tiny("spark + size_crop_condition", CROPS)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    asked = []

    class Listening(SizeCropIn):
        def forward(self, x_t, t, size):
            asked.append(size)
            return super().forward(x_t, t, size)

    painter = Painter.of(built)
    part = painter.backbone.own_condition
    part.__class__ = Listening
    painter.latents(["a red circle"], 0, np.arange(1))
    # the rule of the formula's test above: its own size, 0, 0
    assert asked and all(one is None for one in asked)
    assert part.stride * painter.cells[0] == run.data.size


def test_what_it_costs(tiny):
    run = tiny("spark", CROPS)
    told = SizeCropCondition().edit(run)
    counted = [
        sum(parameter.numel() for parameter in build(one).backbone.parameters())
        for one in (run, told)
    ]
    assert [parameters(run), parameters(told)] == counted
    width = run.model.width
    assert denoiser_training_flops(told) - denoiser_training_flops(run) == 3 * 2 * (
        4 * 256 * width + width * width
    )


class Nowhere(SourceFiller):
    kind = "nowhere"


def test_refused_when_the_phrase_is_read(stores, tiny, tmp_path):
    with pytest.raises(BadInput, match="nothing to tell.*data.source.crop"):
        tiny("spark + size_crop_condition")
    with pytest.raises(BadInput, match="at most 0.5"):
        tiny("spark", "data.source.crop=0.6")
    shutil.copytree(stores / "square", tmp_path / "store")
    lever = SizeCropCondition()
    run = put(tiny("spark"), "data.source", Folder(path=str(tmp_path / "store")))
    assert lever.needs(lever.edit(run)) is None
    with pytest.raises(BadInput, match="'size_crop_condition' cannot be used here.*has no ledger"):
        (tmp_path / "store" / "ledger.json").unlink()
        tiny("spark + size_crop_condition", f"data.source=folder(path='{tmp_path / 'store'}')")
    ledger = json.loads((stores / "square" / "ledger.json").read_text())
    ledger["changes"] = dict.fromkeys(ledger["changes"], 0)
    (tmp_path / "store" / "ledger.json").write_text(json.dumps(ledger))
    assert "nothing to tell" in lever.needs(lever.edit(run))
    assert "'nowhere' does not know" in lever.needs(put(run, "data.source", Nowhere()))
