"""Whatever a reader is given, it reads it or refuses it in words: the readers of `make chaos`, by
hypothesis."""

import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos import input_attack
from chaos.hostile_input import TARGETS
from chaos.input_attack import BYTES, NUMBERS
from chaos.reader_target import Target

EXAMPLES = 120  # for each reader
WITHOUT = [HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large]


def inputs(target):
    """Bytes of no kind, and sound inputs with pieces put in, written over, taken out or
    repeated."""
    piece = st.sampled_from((*BYTES, *NUMBERS, *target.words)) | st.binary(max_size=8)
    change = st.tuples(
        st.floats(0.0, 1.0), st.integers(0, 16), piece, st.sampled_from((1, 1, 1, 8, 300))
    )

    def changed(seed, changes):
        data = bytearray(seed)
        for share, gone, put, times in changes:
            at = round(share * len(data))
            data[at : at + gone] = put * times
        return bytes(data)

    return st.binary(max_size=200) | st.builds(
        changed, st.sampled_from(target.seeds), st.lists(change, max_size=8)
    )


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_reader_refuses_in_words(target, tmp_path):
    @settings(
        max_examples=EXAMPLES,
        deadline=5000,
        derandomize=True,
        database=None,
        suppress_health_check=WITHOUT,
    )
    @given(inputs(target))
    def feed(data):
        with suppress(*target.refusals):
            target.feed(data, tmp_path)

    feed()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_sound_inputs_are_what_the_changes_begin_from(target, tmp_path):
    """At least one is read without a refusal: else nothing behind the first check is ever
    reached."""
    refused = 0
    for seed in target.seeds:
        try:
            target.feed(seed, tmp_path)
        except target.refusals:
            refused += 1
    assert refused < len(target.seeds)


def test_a_reader_that_hangs_is_reported_whatever_it_catches(monkeypatch):
    """Readers catch all that their libraries raise: a hang must not pass for a refusal."""

    def feed(data, folder):
        try:
            time.sleep(5)
        except Exception as error:
            raise ValueError("damaged") from error

    monkeypatch.setattr(input_attack, "LONGEST", 0.05)
    counts = input_attack.attack([Target("sleeper", [b"x"], feed, (ValueError,))], 0.1, seed=0)
    assert len(counts.losses) == 1 and "Slow" in counts.losses[0].what
