"""A feed that reads ahead: the same batches, no more than two of them, errors as themselves, and a
thread that ends."""

import threading
import time
from contextlib import closing

import pytest
import torch

from fulcrum.spec.run import System
from fulcrum.training import feed as feed_module
from fulcrum.training.build import assemble
from fulcrum.training.feed import READ_AHEAD, Feed
from fulcrum.training.flow.noise import HERE
from fulcrum.training.loop import all_stretches, stretches
from fulcrum.training.session import Order, perform

STRETCHES = [(position, 4) for position in range(0, 40, 4)]


class Recording(Feed):
    """A feed of numbers that records what was asked of it, and on which thread."""

    def __init__(self, bad=None, unready=()):
        self.device = "meta"  # any but the CPU
        self.bad = bad
        self.unready = set(unready)
        self.read_at = []
        self.made_at = []
        self.threads = set()

    def is_ready(self, position):
        return position not in self.unready

    def read(self, position, rows):
        self.threads.add(threading.current_thread().name)
        if position == self.bad:
            raise ZeroDivisionError("rows that cannot be read")
        self.read_at.append(position)
        return position, rows

    def to_device(self, read):
        return read

    def at(self, position, rows):
        self.made_at.append(position)
        self.unready.discard(position)
        return position, rows


def feed_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("feed")]


def test_batches_and_draws_are_those_of_the_feed(tiny, cache, monkeypatch):
    """Through both phases of a staged run, with a thread: what the second phase reads is opened by
    the loop."""
    for name in ("moved", "settled"):
        monkeypatch.setattr(feed_module, name, lambda value, device: value)
    monkeypatch.setattr(feed_module, "DrawPlace", lambda device, compiled: HERE)
    run = tiny("spark + tread(start=1, end=1) + repa(until=0.5) + synthetic_then_real(until=0.5)")
    plain = Feed(run, 0, cache)
    asked = list(all_stretches(assemble(run, 0, System(microbatch=3), plain), 0))
    assert [rows for _, rows in asked[:3]] == [3, 3, 2] and asked[-1] == (run.budget.images - 2, 2)
    ahead, threads = Feed(run, 0, cache, device="meta"), set()
    for stretch, (batch, draw) in zip(asked, ahead.batches(asked), strict=True):
        threads |= set(feed_threads())
        wanted, drawn = plain.at(*stretch)
        assert torch.equal(batch.x0, wanted.x0) and torch.equal(batch.text.emb, wanted.text.emb)
        assert batch.x0.dtype == batch.text.emb.dtype == torch.float32
        assert set(batch.teacher) == set(wanted.teacher)
        assert (
            torch.equal(draw.t, drawn.t)
            and torch.equal(draw.eps, drawn.eps)
            and torch.equal(draw.keep, drawn.keep)
        )
    assert len(threads) == 2, "one for each phase"


def test_what_is_read_has_its_stored_dtype(tiny, cache):
    feed = Feed(tiny("spark + pixels + repa"), 0, cache)
    read = feed.read(0, 4)
    assert read.batch.x0.dtype == torch.uint8 and read.batch.text.emb.dtype == torch.float16
    assert {tokens.dtype for tokens in read.batch.teacher.values()} == {torch.float16}
    batch, _ = feed.to_device(read)
    assert {
        batch.x0.dtype,
        batch.text.emb.dtype,
        *(one.dtype for one in batch.teacher.values()),
    } == {torch.float32}
    assert batch.x0.min() >= -1 and batch.x0.max() <= 1


def test_a_teacher_leaves_when_all_that_it_says_is_cached(tiny, cache):
    feed = Feed(tiny("spark + repa"), 0, cache)
    assert feed.at(0)[0].teacher and set(feed.networks) == {"codec", "text"}
    assert set(feed.teachers()) == {"world"}, "and comes back when it is asked for"


def test_no_more_than_two_are_read_ahead_and_a_thread_reads_them():
    feed = Recording()
    for taken, (stretch, batch) in enumerate(
        zip(STRETCHES, feed.batches(STRETCHES), strict=True), 1
    ):
        assert batch == stretch
        time.sleep(0.01)
        assert len(feed.read_at) <= taken + READ_AHEAD
    assert feed.threads == {"feed_0"} and not feed.made_at
    assert feed.read_at == [position for position, _ in STRETCHES]


def test_what_must_be_opened_first_is_made_by_the_loop_and_nothing_behind_it_before():
    feed = Recording(unready={0, 20})
    batches = feed.batches(STRETCHES)
    assert [next(batches) for _ in range(5)] == STRETCHES[:5]
    time.sleep(0.05)
    assert feed.read_at == [4, 8, 12, 16] and feed.made_at == [0]
    assert list(batches) == STRETCHES[5:]
    assert feed.made_at == [0, 20] and feed.read_at == [4, 8, 12, 16, 24, 28, 32, 36]


def test_an_error_of_the_thread_is_raised_as_itself_where_its_batch_is_asked_for():
    batches = Recording(bad=8).batches(STRETCHES)
    assert [next(batches), next(batches)] == STRETCHES[:2]
    with pytest.raises(ZeroDivisionError, match="rows that cannot be read"):
        next(batches)
    assert not feed_threads()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_thread_ends_with_the_run_however_that_ends(error):
    with pytest.raises(error), closing(Recording().batches(STRETCHES)) as batches:
        next(batches)
        assert feed_threads()
        raise error
    assert not feed_threads()


def test_a_cpu_reads_nothing_ahead(tiny, cache, monkeypatch):
    feed = Feed(tiny(), 0, cache)
    asked = []
    real = feed.read
    monkeypatch.setattr(feed, "read", lambda *stretch: asked.append(stretch) or real(*stretch))
    with closing(feed.batches(STRETCHES)) as batches:
        next(batches)
        assert asked == STRETCHES[:1] and not feed_threads()


def test_a_process_takes_its_rows_in_parts(tiny, cache):
    built = assemble(tiny(), 0, System(microbatch=5), Feed(tiny(), 0, cache))
    assert stretches(built, 16) == [(16, 5), (21, 3)]


@pytest.fixture
def third_gpu(monkeypatch):
    """A process that computes on its third GPU: which one each thread takes, by the thread's
    name."""
    taken = {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "set_device", lambda gpu: taken.update({threading.current_thread().name: gpu})
    )
    return taken


def test_the_thread_pins_its_memory_by_way_of_its_own_gpu(third_gpu):
    """CUDA gives a new thread the first GPU: eight processes would each have a context there."""
    assert list(Recording().batches(STRETCHES)) == STRETCHES
    assert third_gpu == {"feed_0": 2}


def test_threads_that_encode_take_the_gpu_of_their_process(third_gpu, tiny, tmp_path):
    feed = Feed(tiny("spark", "data.source.count=600"), 0, tmp_path)
    feed.encode_abreast(2)
    feed.at(0)
    assert {name.rpartition("_")[0] for name in third_gpu} == {"encode"} and set(
        third_gpu.values()
    ) == {2}


@pytest.mark.parametrize(("device", "abreast"), [("cpu", 64), ("cuda", 2), ("meta", 2)])
def test_a_gpu_is_not_given_a_chunk_for_every_core_of_the_host(device, abreast, tiny, cache):
    """Each has its activations there: 64 of FLUX.1's autoencoder would need more than any GPU
    has."""
    feed = Feed(tiny(), 0, cache, device=device)
    feed.encode_abreast(64)
    assert feed.cache.threads == abreast
    feed.encode_abreast(1)
    assert feed.cache.threads == 1


def test_a_session_encodes_as_its_feed_says(tiny, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        Feed, "encode_abreast", lambda self, threads: asked.append((self.device, threads))
    )
    perform(Order(tiny(), 0, "spark", tmp_path, System(), quiet=True), lambda text: None)
    assert asked == [("cpu", 1)]
