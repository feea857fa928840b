"""One process: starting, preparing, clipping, dealing, dtypes, without a process group."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.training.dist.collectives import clip, mean, total, whole
from fulcrum.training.dist.matrix_owners import Owners, deal, unpack
from fulcrum.training.dist.ranks import Ranks, start
from fulcrum.training.dist.shard import (
    bf16_speedup,
    has_fast_bf16,
    prepare,
    shard_policy,
    sum_gradients,
)


def test_without_torchrun_a_process_is_alone() -> None:
    with start(env={}) as ranks:
        assert (ranks.rank, ranks.size, ranks.first) == (0, 1, True)
        assert ranks.rows(6) == slice(0, 6)
        ranks.barrier("nothing")
        assert total(torch.ones(2), ranks).tolist() == [1, 1] and mean(torch.ones(()), ranks) == 1
    assert not torch.distributed.is_initialized()


def test_half_an_environment_is_refused() -> None:
    with (
        pytest.raises(BadInput, match="RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"),
        start(env={"WORLD_SIZE": "2"}),
    ):
        pass


def test_a_world_that_nobody_joins_says_so() -> None:
    env = {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    with (
        pytest.raises(RunFailed, match="rank 1 of 2 could not join the others"),
        start(timeout=1.0, env=env),
    ):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_refused() -> None:
    with pytest.raises(BadInput, match="finds no GPU"), start("cuda", env={}):
        pass


def test_rows_are_dealt_evenly_or_not_at_all() -> None:
    assert [Ranks(rank, 3).rows(6) for rank in range(3)] == [slice(0, 2), slice(2, 4), slice(4, 6)]
    with pytest.raises(BadInput, match="8 rows .* 3 processes"):
        Ranks(0, 3).rows(8)


class Small(nn.Module):
    def __init__(self, table_device: str | None = "cpu") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.register_buffer("table", torch.arange(3.0, device=table_device), persistent=False)


def test_prepare_keeps_the_order_and_fills_every_parameter() -> None:
    with torch.device("meta"):
        small = Small()
    order: list[str] = []

    def init(name: str, shape: torch.Size) -> Tensor:
        order.append(name)
        return torch.full(shape, float(len(order)))

    prepare(
        small,
        small.blocks,
        Ranks(),
        init,
        recompute=lambda: order.append("recompute"),
        compile=lambda: order.append("compile"),
    )
    assert order == [
        "recompute",
        "compile",
        "blocks.0.weight",
        "blocks.0.bias",
        "blocks.1.weight",
        "blocks.1.bias",
    ]
    assert small.blocks[1].bias.tolist() == [6, 6, 6] and small.table.tolist() == [0, 1, 2]
    sum_gradients(small, False)  # alone there is nothing to turn off


def test_prepare_refuses_what_it_cannot_fill() -> None:
    def zeros(name: str, shape: torch.Size) -> Tensor:
        return torch.zeros(shape)

    with pytest.raises(ValueError, match="already has memory"):
        prepare(Small(), [], Ranks(), zeros)
    with torch.device("meta"):
        lost, good = Small(table_device=None), Small()
    with pytest.raises(ValueError, match="buffer 'table' is on the meta device"):
        prepare(lost, [], Ranks(), zeros)
    with pytest.raises(ValueError, match=r"init gave \(1,\) for parameter 'blocks.0.weight'"):
        prepare(good, [], Ranks(), lambda name, shape: torch.zeros(1))


def test_clip_equals_torch() -> None:
    def held() -> list[Parameter]:
        g = torch.Generator().manual_seed(0)
        parameters = [
            Parameter(torch.zeros(4, 3)),
            Parameter(torch.zeros(5)),
            Parameter(torch.zeros(2)),
        ]
        for parameter in parameters[:2]:
            parameter.grad = torch.randn(parameter.shape, generator=g)
        return parameters

    for limit in (0.2, 100.0):
        ours, theirs = held(), held()
        norm = clip(ours, limit)
        assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, limit).item())
        for a, b in zip(ours[:2], theirs[:2], strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    parameters = held()
    parameters[0].grad[0, 0] = float("nan")
    assert not torch.isfinite(clip(parameters, 1.0))
    with pytest.raises(ValueError, match="no gradient"):
        clip([Parameter(torch.zeros(1))], 1.0)
    with pytest.raises(ValueError, match="positive"):
        clip(held(), 0.0)


def test_whole_is_itself_alone() -> None:
    parameter = Parameter(torch.ones(2))
    assert torch.equal(whole(parameter), parameter) and not whole(parameter).requires_grad


def test_matrices_are_dealt_shape_by_shape() -> None:
    shapes = {
        f"{kind}{i}": shape
        for i in range(4)
        for kind, shape in (("wide", (2, 9)), ("small", (2, 2)))
    }
    owned = deal(shapes, 2)
    assert sorted(name for names in owned for name in names) == sorted(shapes)
    assert all(sum(name.startswith("wide") for name in names) == 2 for names in owned)
    assert deal({"a": (2, 2)}, 3) == [["a"], [], []]


def test_unpack_is_the_inverse_of_packing() -> None:
    matrices = [torch.randn(2, 3), torch.randn(0, 4), torch.randn(1, 5)]
    back = unpack(torch.cat([m.reshape(-1) for m in matrices]), [tuple(m.shape) for m in matrices])
    assert all(torch.equal(a, b) for a, b in zip(matrices, back, strict=True))


def test_owners_refuse_what_is_not_sharded() -> None:
    with pytest.raises(ValueError, match="'w' must be sharded by rows.*plain tensor"):
        Owners(Ranks(0, 2))({"w": torch.zeros(1, 2)}, {"w": Parameter(torch.zeros(2, 2))}, dict)


def test_sharding_casts_nothing() -> None:
    policy = shard_policy(torch.float32)
    # norm scales stay as one process has them
    assert policy.param_dtype is None and policy.reduce_dtype == torch.float32
    assert policy.cast_forward_inputs is False


def test_bf16_is_judged_by_measurement() -> None:
    assert bf16_speedup(size=128, rounds=3) > 0
    assert has_fast_bf16() == (bf16_speedup() > 1.2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "banana"),
        ("RANK", "5"),
        ("RANK", "-1"),
        ("MASTER_PORT", "abc"),
        ("MASTER_PORT", "999999"),
        ("WORLD_SIZE", "²"),
    ],
)
def test_nonsense_of_a_launcher_is_refused_before_anybody_waits(name: str, value: str) -> None:
    env = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29555",
    }
    with (
        pytest.raises(BadInput, match=f"{name} is '{value}', expected a number from"),
        start(timeout=600.0, env=env | {name: value}),
    ):
        pass
