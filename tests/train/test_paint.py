"""No picture depends on the others: any batch, any share of the work, the same pictures and the
same metrics."""

import multiprocessing

import numpy as np
import pytest
import torch

from fulcrum.measure.evaluation import measure, prompts
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train
from fulcrum.training.painter import Painter

pytestmark = pytest.mark.long

COUNT = 40


@pytest.fixture(scope="module")
def trained(tiny, cache):
    run = tiny("spark", "sample.steps=4")
    built = assemble(run, 0, System(), Feed(run, 0, cache))
    train(built, State(), [], after(4))
    return built


def drawn(painter, wanted, index, steady=True):
    return torch.cat(
        list(painter.pictures([wanted[i] for i in index], 7, np.asarray(index), steady))
    )


def pieces(count, size):
    return [list(range(first, min(first + size, count))) for first in range(0, count, size)]


@pytest.mark.parametrize("size", [1, 3, 16, 33])
def test_pictures_do_not_depend_on_their_company(size, trained):
    painter, wanted = Painter.of(trained), prompts(trained.run, COUNT).texts
    whole = drawn(painter, wanted, list(range(COUNT)))
    assert torch.equal(
        torch.cat([drawn(painter, wanted, piece) for piece in pieces(COUNT, size)]), whole
    )
    as_they_come = torch.cat(
        [drawn(painter, wanted, piece, steady=False) for piece in pieces(COUNT, size)]
    )
    assert (as_they_come.int() - whole.int()).abs().max() <= 1  # of 255


def _share(run, weights, index, found):
    torch.set_num_threads(1)
    painter = Painter(run, weights, run.encode.codec.build(None), run.encode.text.build(None))
    found.put((index[0], drawn(painter, prompts(run, COUNT).texts, index).numpy()))


def test_two_processes_draw_what_one_draws(trained):
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    weights = {
        name: value.clone()
        for name, value in trained.average.weights(trained.step.backbone).items()
    }
    shares = [list(range(13)), list(range(13, COUNT))]
    workers = [
        context.Process(target=_share, args=(trained.run, weights, share, found))
        for share in shares
    ]
    for worker in workers:
        worker.start()
    parts = dict(found.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    whole = drawn(Painter.of(trained), prompts(trained.run, COUNT).texts, list(range(COUNT)))
    assert np.array_equal(np.concatenate([parts[first] for first in sorted(parts)]), whole.numpy())


def test_metrics_do_not_depend_on_the_batch(trained, cache, monkeypatch):
    painter = Painter.of(trained)
    one = measure(trained.run, painter, cache, 64)
    in_pieces = painter.pictures

    def pictures(wanted, seed, index, steady):
        for piece in pieces(len(wanted), 17):
            yield from in_pieces([wanted[i] for i in piece], seed, index[piece], steady)

    monkeypatch.setattr(painter, "pictures", pictures)
    assert {
        name: found.value for name, found in measure(trained.run, painter, cache, 64).items()
    } == {name: found.value for name, found in one.items()}


def test_another_shape_is_drawn_and_an_impossible_one_refused(trained):
    run, parts = trained.run, (trained.feed.codec(), trained.feed.text())
    weights = trained.average.weights(trained.step.backbone)
    token = run.encode.codec.stride * run.model.patch
    size = (2 * token, 3 * token)
    wide = drawn(Painter(run, weights, *parts, size=size), ["a red circle"] * 2, [0, 1])
    assert wide.shape == (2, 3, *size) and not torch.equal(wide[0], wide[1])
    with pytest.raises(BadInput, match=f"{size[1]}x{size[0] + 1}"):
        Painter(run, weights, *parts, size=(size[0] + 1, size[1]))
