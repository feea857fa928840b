"""Ctrl-C and SIGTERM: launchers pass the same one on twice, and the second must cost neither the
save nor the exit code."""

import shutil
import signal

import pytest

from fulcrum.spec.edit import key
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training import session as stop_asked
from fulcrum.training.dist.ranks import ALONE
from fulcrum.training.saver import Saver
from fulcrum.training.session import Interrupted, Order, StopAsked, ToldAgain, perform

STOPS = (signal.SIGINT, signal.SIGTERM)
CODES = [(signal.SIGTERM, 75), (signal.SIGINT, 130)]


@pytest.fixture(autouse=True)
def known_handlers():
    """Whoever listened before a test listens after it; SIGTERM raises, so that a test can see that
    it came through."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run trained in one go."""
    out = tmp_path_factory.mktemp("runs")
    return out, perform(Order(tiny(), 0, "spark", out, System(), quiet=True), lambda text: None)


def trained(tiny, whole, out, at=None, number=signal.SIGTERM):
    """A run that is told to stop after so many images."""
    if not (out / "cache").exists():
        shutil.copytree(whole[0] / "cache", out / "cache")
    order = Order(tiny(), 0, "spark", out, System(), quiet=True)
    look = lambda seen: signal.raise_signal(number) if seen.state.images == at else None  # noqa: E731
    return perform(order, lambda text: None, lambda *built: [look])


def saved(tiny, out):
    return [int(path.name) for path in checkpoint.listing(out / key(tiny(), 0) / "checkpoints")]


def signalled_in(monkeypatch, owner, name, number):
    """The signal comes as this begins, and once more as it ends."""
    real = getattr(owner, name)

    def told(*given):
        signal.raise_signal(number)
        result = real(*given)
        signal.raise_signal(number)
        return result

    monkeypatch.setattr(owner, name, told)


@pytest.mark.parametrize(("number", "code"), CODES)
def test_the_same_signal_twice_is_one_wherever_it_falls(
    whole, tiny, tmp_path, monkeypatch, number, code
):
    with monkeypatch.context() as patch:
        signalled_in(patch, Saver, "keep", number)
        with pytest.raises(
            Interrupted, match="stopped at 24 of 48 images; everything is saved"
        ) as stopped:
            trained(tiny, whole, tmp_path, 24, number)
        signal.raise_signal(number)  # into the leaving
    assert (
        stopped.value.exit_code == code
        and stopped.value.together
        and saved(tiny, tmp_path)[-1] == 24
    )
    assert trained(tiny, whole, tmp_path)["weights_sha256"] == whole[1]["weights_sha256"]


@pytest.mark.parametrize(("number", "code"), CODES)
def test_told_again_later_it_waits_for_no_save_and_keeps_the_code(
    whole, tiny, tmp_path, monkeypatch, number, code
):
    monkeypatch.setattr(stop_asked, "ECHO", -1.0)
    signalled_in(monkeypatch, Saver, "keep", number)
    with pytest.raises(Interrupted, match="told again") as stopped:
        trained(tiny, whole, tmp_path, 24, number)
    assert (
        stopped.value.exit_code == code
        and not stopped.value.together
        and 24 not in saved(tiny, tmp_path)
    )


def test_told_again_is_told_though_the_save_makes_an_error_of_it(monkeypatch):
    monkeypatch.setattr(stop_asked, "ECHO", -1.0)
    with pytest.raises(Interrupted, match="told again") as stopped, StopAsked(ALONE, "go on"):
        signal.raise_signal(signal.SIGTERM)
        try:
            signal.raise_signal(signal.SIGINT)
        except ToldAgain as told:
            raise RuntimeError(f"rank 0: {told}") from told
    assert "told again to stop, by SIGINT" in str(stopped.value.__cause__)
    assert stopped.value.exit_code == 75, "a SIGTERM was among them: start it again"


def test_a_signal_in_the_last_save_leaves_a_finished_run(whole, tiny, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        signalled_in(patch, Saver, "keep", signal.SIGTERM)
        with pytest.raises(
            Interrupted, match="stopped at 48 of 48 images; everything is saved"
        ) as stopped:
            trained(tiny, whole, tmp_path)
    assert stopped.value.exit_code == 75
    assert trained(tiny, whole, tmp_path)["weights_sha256"] == whole[1]["weights_sha256"]


@pytest.mark.parametrize("number", STOPS)
def test_who_listened_before_listens_again(whole, tiny, tmp_path, monkeypatch, number):
    before = [signal.getsignal(number) for number in STOPS]
    trained(tiny, whole, tmp_path / "to_the_end")
    assert [signal.getsignal(number) for number in STOPS] == before
    with pytest.raises(Interrupted):
        trained(tiny, whole, tmp_path / "stopped", 24, number)
    signal.raise_signal(number)  # the same one
    monkeypatch.setattr(stop_asked, "ECHO", -1.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)  # another one: nothing of the run is left that it could hurt
    assert [signal.getsignal(number) for number in STOPS] == before


def test_one_that_comes_too_late_to_be_agreed_on_is_handed_on():
    with pytest.raises(KeyboardInterrupt), StopAsked(ALONE, "go on") as stop:
        stop.leave(8, 8)
        signal.raise_signal(signal.SIGTERM)
