"""Training on pictures of several shapes: every batch whole and of one shape, with all that a step
reads and draws."""

import numpy as np
import pytest
import torch
from PIL import Image

from fulcrum.cli import main
from fulcrum.data.fillers import Folder
from fulcrum.files.paths import Damaged
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.edit import put
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble, require_witness
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train
from fulcrum.training.session import Interrupted, Order, perform

COLOURS = {"red": (200, 30, 30), "blue": (30, 40, 200), "green": (40, 160, 60)}
SIZES = ((60, 40), (40, 60), (44, 44), (40, 64))


@pytest.fixture(scope="module")
def shaped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shaped")
    (folder / "given").mkdir()
    for number in range(120):
        name, colour = list(COLOURS.items())[number % 3]
        width, height = SIZES[number % 4]
        pixels = np.random.default_rng(number).integers(0, 50, (height, width, 3)) + np.array(
            colour
        )
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "given" / f"{number:04d}.png")
        (folder / "given" / f"{number:04d}.txt").write_text(f"a large {name} square in the centre")
    with pytest.raises(SystemExit) as end:
        main(
            [
                "data",
                "import",
                str(folder / "given"),
                str(folder / "store"),
                "--size",
                "32",
                "--buckets",
                "--quiet",
            ]
        )
    assert end.value.code == 0
    return folder / "store"


def shaped_run(tiny, store, phrase="spark", *settings):
    return put(tiny(phrase, *settings), "data.source", Folder(path=str(store)))


def grids(feed, images, batch=8):
    return [tuple(feed.at(at, batch)[0].x0.shape[-2:]) for at in range(0, images, batch)]


def test_a_step_reads_and_draws_the_shape_of_its_batch(shaped, tiny, cache):
    feed = Feed(shaped_run(tiny, shaped, "spark + tread + irepa"), 0, cache)
    seen = set()
    for at in range(0, 48, 8):
        batch, draw = feed.at(at)
        rows, columns = batch.x0.shape[-2:]
        tokens = rows * columns // feed.run.model.patch**2
        assert draw.eps.shape == batch.x0.shape and batch.x0.shape[0] == 8
        assert batch.teacher["world"].shape[:2] == (8, tokens)
        assert (
            draw.keep.shape == (8, feed.run.model.route.kept(tokens))
            and int(draw.keep.max()) < tokens
        )
        parts = [feed.at(at + first, rows) for first, rows in ((0, 3), (3, 4), (7, 1))]
        assert torch.equal(torch.cat([one.x0 for one, _ in parts]), batch.x0)
        assert torch.equal(torch.cat([one.eps for _, one in parts]), draw.eps), (
            "any cut among processes is the same batch"
        )
        seen.add((rows, columns))
    assert len(seen) > 1
    with pytest.raises(ValueError, match="one shape"):
        feed.at(0, 48)


def test_latents_are_those_of_the_pictures(shaped, tiny, cache):
    feed = Feed(shaped_run(tiny, shaped), 0, cache)
    at = next(
        at
        for at, grid in zip(range(0, 200, 8), grids(feed, 200), strict=True)
        if grid[0] != grid[1]
    )
    batch, _ = feed.at(at)
    images = torch.from_numpy(feed.source_at(at).read(batch.ids.numpy()).images).float() / 127.5 - 1
    assert torch.allclose(feed.codec().encode(images), batch.x0, atol=1e-5)
    entries = [job for job in feed.jobs() if job.kind == "latents"]
    assert len(entries) == 3 and sum(job.count for job in entries) == len(feed.source_at(0))


def test_teachers_tokens_stand_in_their_places(shaped, tiny, cache):
    """One token of the model covers the same pixels of a long picture as of a square one."""
    feed = Feed(shaped_run(tiny, shaped, "spark + repa"), 0, cache)
    at = next(
        at for at, grid in zip(range(0, 200, 8), grids(feed, 200), strict=True) if grid[0] > grid[1]
    )
    batch, _ = feed.at(at)
    teacher = feed._teacher(feed.run, "world")
    image = torch.full((1, 3, 40, 24), -1.0)
    image[:, :, 32:, 16:] = 1.0  # the last token of five rows and three columns
    odd = (teacher.tokens(image) - teacher.tokens(torch.full((1, 3, 40, 24), -1.0))).norm(dim=-1)[0]
    assert batch.teacher["world"].shape[1] == len(odd) == 15 and int(odd.argmax()) == 14


@pytest.mark.parametrize(
    "phrase",
    [
        "spark + tread + irepa",
        "spark + sprint + resolution_condition",
        "spark + repa + end_to_end_codec",
        "spark + pixels",
    ],
)
def test_levers_train_on_shapes(shaped, tiny, cache, phrase):
    run = shaped_run(tiny, shaped, phrase)
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    require_witness(parse(phrase, CATALOG).levers, built)
    totals = []
    train(built, State(), [lambda look: totals.append(look.loss)], after(4))
    assert len(totals) == 4 and np.isfinite(totals).all()


def test_a_stopped_run_goes_on_bit_for_bit(shaped, tiny, tmp_path):
    run = shaped_run(tiny, shaped)
    whole = perform(
        Order(run, 0, "spark", tmp_path / "whole", System(), quiet=True), lambda text: None
    )
    count = [0]

    def stopping(built, folder, state):
        import os
        import signal

        def look(seen):
            count[0] += 1
            if count[0] == 3:
                os.kill(os.getpid(), signal.SIGTERM)

        return [look]

    order = Order(run, 0, "spark", tmp_path / "parts", System(), quiet=True)
    with pytest.raises(Interrupted):
        perform(order, lambda text: None, stopping)
    said = []
    again = perform(order, said.append)
    assert (
        any("resumed at 24 images" in line for line in said)
        and again["weights_sha256"] == whole["weights_sha256"]
    )


def test_gradients_do_not_depend_on_how_a_batch_is_cut(shaped, tiny, cache):
    found = []
    for microbatch in (None, 3):
        run = shaped_run(tiny, shaped)
        built = assemble(run, 0, System(microbatch=microbatch), Feed(run, 0, cache))
        train(built, State(), [], after(1))
        found.append(torch.cat([one.detach().flatten() for one in built.step.parameters()]))
    assert torch.allclose(*found, atol=1e-6)


def test_one_flipped_bit_in_the_entry_of_a_shape_is_found(shaped, tiny, tmp_path):
    run = shaped_run(tiny, shaped)
    Feed(run, 0, tmp_path).at(0)
    path = sorted(tmp_path.glob("latents-*/rows.00000.bin"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    feed = Feed(run, 0, tmp_path)
    with pytest.raises(Damaged, match="a bit has changed"):  # by the batch that reads that shape
        for position in range(0, run.budget.images, run.budget.batch):
            feed.at(position)
