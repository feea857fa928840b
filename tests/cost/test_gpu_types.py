"""How machines are written, and what is said where they are written wrongly."""

import pytest

from fulcrum.spec.errors import BadInput
from fulcrum.spec.speed import GPUS, Machine, read_machine


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("8xH100", Machine(8, "H100")),
        (" 64 x h200 ", Machine(64, "H200")),
        ("rtx-4090", Machine(1, "RTX4090")),
        ("2×A100-40GB", Machine(2, "A100-40GB")),
        ("H100x8", Machine(8, "H100")),
        ("a100-40gb * 4", Machine(4, "A100-40GB")),
        ("RTX 4090 x 2", Machine(2, "RTX4090")),
        ("RTX4090", Machine(1, "RTX4090")),
        ("8xA100-80GB", Machine(8, "A100")),
    ],
)
def test_machines_as_people_write_them(text, machine):
    assert read_machine(text) == machine


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("8xH10", "no GPU is known as 'H10'", "H100"),
        ("8xABACUS", "no GPU is known as 'ABACUS'", "known: A10"),
        ("0xH100", "asks for 0 GPUs", "1 to 65,536"),
        ("H100x0", "asks for 0 GPUs", "1 to 65,536"),
        ("2.5xH200", "does not say how many", "--gpus 8xH100"),
        ("8xH100x2", "no GPU is known as 'H100x2'", "H100"),
        ("-4xH100", "does not say how many", "--gpus 8xH100"),
        ("999999999xH100", "asks for 999,999,999 GPUs", "1 to"),
        ("8xH100,", "does not say how many", "--gpus 8xH100"),
        ("8", "does not say how many", "known: B200"),
        ("", "does not say how many", "8xH100"),
        ("x" * 9, "no GPU is known", "fulcrum estimate"),
        ("9" * 5000 + "xH100", "does not say how many", "8xH100"),
    ],
)
def test_machines_that_cannot_be_read(text, message, hint):
    with pytest.raises(BadInput) as told:
        read_machine(text)
    assert message in told.value.message and hint in told.value.hint


def test_weights_are_shared_inside_a_machine():
    assert [Machine(count, "H100").shards for count in (1, 4, 7, 8, 64)] == [1, 4, 7, 8, 8]
    # a mesh of shards that do not divide the GPUs cannot be started
    assert Machine(12, "H100").mesh == "3x4"
    assert all(gpu.fp32 < gpu.bf16 and gpu.memory > 1e10 and gpu.price > 0 for gpu in GPUS.values())
