"""A feed that keeps ahead: the same batches, no more than two of them, errors as themselves, and a
thread that ends."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.feed import AHEAD, Feed, FeedAhead, feeding
from fulcrum.training.loop import all_stretches, stretches
from fulcrum.training.session import Order, perform

STRETCHES = [(position, 4) for position in range(0, 40, 4)]


class Recording:
    """A feed of numbers that writes down what was asked of it, and on which thread."""

    device = "meta"  # any but the CPU

    def __init__(self, bad=None, unready=()):
        self.bad, self.unready, self.staged_at, self.made_at = bad, set(unready), [], []
        self.threads = set()

    def is_ready(self, position):
        return position not in self.unready

    def staged(self, position, rows):
        self.threads.add(threading.current_thread().name)
        if position == self.bad:
            raise ZeroDivisionError("rows that cannot be read")
        self.staged_at.append(position)
        return position, rows

    def landed(self, staged):
        return staged

    def at(self, position, rows):
        self.made_at.append(position)
        self.unready.discard(position)
        return position, rows


def feed_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("feed")]


def test_batches_and_draws_are_those_of_the_feed(tiny, cache):
    """Through both phases of a staged run: what the second one reads is opened by the loop, not by
    the thread."""
    run = tiny("spark + tread(start=1, end=1) + repa(until=0.5)")
    feed, plain = Feed(run, 0, cache), Feed(run, 0, cache)
    asked = list(all_stretches(assemble(run, 0, System(microbatch=3), feed), 0))
    assert [rows for _, rows in asked[:3]] == [3, 3, 2] and asked[-1] == (run.budget.images - 2, 2)
    with ThreadPoolExecutor(1) as pool:
        ahead = FeedAhead(feed, iter(asked), pool)
        for stretch in asked:
            batch, draw = ahead.at(*stretch)
            wanted, drawn = plain.at(*stretch)
            assert torch.equal(batch.x0, wanted.x0) and torch.equal(batch.text.emb, wanted.text.emb)
            assert batch.x0.dtype == batch.text.emb.dtype == torch.float32
            assert set(batch.teacher) == set(wanted.teacher)
            assert (
                torch.equal(draw.t, drawn.t)
                and torch.equal(draw.eps, drawn.eps)
                and torch.equal(draw.keep, drawn.keep)
            )


def test_what_is_staged_has_its_stored_dtype(tiny, cache):
    feed = Feed(tiny("spark + pixels + repa"), 0, cache)
    staged = feed.staged(0, 4)
    assert staged.batch.x0.dtype == torch.uint8 and staged.batch.text.emb.dtype == torch.float16
    assert {tokens.dtype for tokens in staged.batch.teacher.values()} == {torch.float16}
    batch, _ = feed.landed(staged)
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


def test_no_more_than_two_are_made_ahead_and_a_thread_makes_them():
    feed = Recording()
    with feeding(feed, STRETCHES) as ahead:
        for taken, stretch in enumerate(STRETCHES, 1):
            assert ahead.at(*stretch) == stretch
            time.sleep(0.01)
            assert len(feed.staged_at) <= taken + AHEAD
        assert feed.threads == {"feed_0"} and not feed.made_at
    assert feed.staged_at == [position for position, _ in STRETCHES]


def test_what_must_be_opened_first_is_made_by_the_loop_and_nothing_behind_it_before():
    feed = Recording(unready={0, 20})
    with feeding(feed, STRETCHES) as ahead:
        for stretch in STRETCHES[:5]:
            assert ahead.at(*stretch) == stretch
        time.sleep(0.05)
        assert feed.staged_at == [4, 8, 12, 16] and feed.made_at == [0]
        for stretch in STRETCHES[5:]:
            assert ahead.at(*stretch) == stretch
    assert feed.made_at == [0, 20] and feed.staged_at == [4, 8, 12, 16, 24, 28, 32, 36]


def test_an_error_of_the_thread_is_raised_as_itself_where_its_batch_is_asked_for():
    with feeding(Recording(bad=8), STRETCHES) as ahead:
        ahead.at(0, 4), ahead.at(4, 4)
        with pytest.raises(ZeroDivisionError, match="rows that cannot be read"):
            ahead.at(8, 4)
    assert not feed_threads()


def test_a_stretch_that_was_not_told_is_refused():
    with (
        feeding(Recording(), STRETCHES) as ahead,
        pytest.raises(ValueError, match=r"\(0, 4\) comes next.*\(8, 4\)"),
    ):
        ahead.at(8, 4)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_thread_ends_with_the_run_however_that_ends(error):
    with pytest.raises(error), feeding(Recording(), STRETCHES) as ahead:
        ahead.at(0, 4)
        assert feed_threads()
        raise error
    assert not feed_threads()


def test_a_cpu_makes_nothing_ahead(tiny, cache):
    feed = Feed(tiny(), 0, cache)
    with feeding(feed, STRETCHES) as given:
        assert given is feed and not feed_threads()


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
    with feeding(Recording(), STRETCHES) as ahead:
        ahead.at(*STRETCHES[0])
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
