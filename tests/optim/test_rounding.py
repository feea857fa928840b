"""Stochastic rounding: unbiased, keyed by (seed, step, name, element), blind to shards; the levers
of stored precision."""

import pytest
import torch
from torch.nn import Parameter

from fulcrum import phrase
from fulcrum.levers.optim import UseEMA, UseMuon
from fulcrum.levers.precision import BF16OptimizerState, StochasticRounding
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import parameters
from fulcrum.spec.memory import RankLayout, step_memory, weights_memory
from fulcrum.spec.run import Budget, RunSpec, System
from fulcrum.training.build import assemble
from fulcrum.training.feed import Feed
from fulcrum.training.optim.muon import Muon
from fulcrum.training.optim.optimizers import (
    CHUNK,
    AdamW,
    Joint,
    StoredWeights,
    keep_gradients,
    keys,
    random_bits,
    round_at_random,
)

ULP = 2.0**-7  # between bf16 neighbours from one to two
MANY = 2**18


def rounded(
    values: torch.Tensor, at: int = 0, name: str = "w", seed: int = 0, first: int = 0
) -> torch.Tensor:
    copy = values.clone()
    round_at_random(copy, keys(seed, at, name), first)
    return copy


@pytest.mark.parametrize("share", [1 / 65536, 0.03, 0.25, 0.5, 0.9, 1 - 1 / 65536])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_mean_is_kept(share: float, sign: float) -> None:
    found = rounded(torch.full((MANY,), sign * (1 + share * ULP)))
    exact = round(share * 65536) / 65536  # what the lower half of the value says
    assert set(found.tolist()) <= {sign, sign * (1 + ULP)}
    error = abs((found.double().abs() - 1).mean().item() / ULP - exact)
    assert error < 4.5 * (exact * (1 - exact) / MANY) ** 0.5


def test_one_element_is_unbiased_over_the_steps() -> None:
    value = torch.tensor([1 + 0.3 * ULP, -3 - 0.6 * 2 * ULP])
    found = torch.stack([rounded(value, at=step * 32) for step in range(4000)]).double()
    error = (found.mean(0) - value.double()).abs() / torch.tensor([ULP, 2 * ULP])
    assert error.max() < 4.5 * 0.5 / 4000**0.5


def test_the_random_bits_are_even_and_independent() -> None:
    """Of neighbours, of two steps, of two names: each bit is fair, and no bit follows another's."""

    def bits(at: int = 0, name: str = "w") -> torch.Tensor:
        drawn = torch.cat(
            [
                random_bits(first, CHUNK, keys(0, at, name), torch.device("cpu"))
                for first in range(0, MANY, CHUNK)
            ]
        )
        # (MANY, 16)
        return ((drawn[:, None] >> torch.arange(16, dtype=torch.int32)) & 1).float() - 0.5

    here, bound = bits(), 5 * 0.25 / MANY**0.5
    assert here.mean(0).abs().max() < 2 * bound
    for other in (bits(at=32), bits(name="v"), here.roll(1, 0), here.roll(64, 0)):
        assert (here.T @ other / MANY).abs().max() < bound
    within = here.T @ here / MANY - torch.eye(16) / 4
    assert within.abs().max() < bound


def bits_by_hand(element: int, key: tuple[int, int]) -> int:
    """The hash in whole numbers that are cut to 32 bits: two elements share one."""
    x = (element // 2 + key[0]) % 2**32
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32 ^ key[1] % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    x ^= x >> 16
    return x >> 16 if element % 2 else x & 0xFFFF


@pytest.mark.parametrize(
    ("seed", "at", "name", "first", "key", "bits"),
    [
        (0, 0, "w", 0, (144147902, -304409765), [37626, 8114, 57010, 42967, 33501, 47926]),
        (
            7,
            32,
            "blocks.0.qkv.weight",
            2**20 + 1,
            (-251205200, -1443972930),
            [62770, 50575, 61920, 38173, 42970],
        ),
    ],
)
def test_the_bits_are_those_of_every_run_before(
    seed: int, at: int, name: str, first: int, key: tuple[int, int], bits: list[int]
) -> None:
    """Others would be as random, and a run's weights would no longer be its own."""
    assert keys(seed, at, name) == key
    assert random_bits(first, len(bits), key, torch.device("cpu")).tolist() == bits
    assert [bits_by_hand(first + k, key) for k in range(len(bits))] == bits


def test_what_is_representable_stays_whatever_it_is() -> None:
    exact = torch.tensor(
        [0.0, -0.0, 1.0, -1 - ULP, 2.0**-126, float("inf"), -float("inf"), float("nan")]
    )
    many = exact.repeat(1000)
    assert torch.equal(rounded(many).view(torch.int32), many.view(torch.int32))


def test_shards_round_as_the_whole_does() -> None:
    whole = torch.randn(3 * CHUNK + 17, generator=torch.Generator().manual_seed(0))
    expected = rounded(whole)
    assert torch.equal(expected, expected.bfloat16().float()) and not torch.equal(
        expected, whole.bfloat16().float()
    )
    for cut in (1, 1000, CHUNK, 2 * CHUNK + 5):
        parts = torch.cat([rounded(whole[:cut]), rounded(whole[cut:], first=cut)])
        assert torch.equal(parts, expected), cut
    for other in ({"at": 1}, {"name": "v"}, {"seed": 1}, {"first": 1}):
        assert not torch.equal(rounded(whole, **other), expected), other


def test_gradients_are_rounded_to_the_nearest_that_the_type_holds() -> None:
    values = torch.randn(100, generator=torch.Generator().manual_seed(0))
    held, without = Parameter(torch.zeros(100)), Parameter(torch.zeros(3))
    held.grad = values.clone()
    keep_gradients([held, without], torch.bfloat16)
    assert torch.equal(held.grad, values.bfloat16().float()) and not torch.equal(held.grad, values)
    assert held.grad.dtype == torch.float32 and without.grad is None


def test_only_contiguous_fp32_is_rounded_in_place() -> None:
    for wrong in (torch.zeros(2, dtype=torch.float64), torch.zeros(4, 4).T[:2]):
        with pytest.raises(ValueError, match="contiguous fp32"):
            round_at_random(wrong, (0, 0))


@pytest.mark.parametrize("build", [AdamW, Muon])
def test_small_updates_add_up_only_when_rounded_at_random(build) -> None:
    """200 steps of 2e-4 and less against neighbours 2^-7 apart: to nearest nothing moves, at random
    as far as in fp32."""
    moved, gradient = {}, torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    for how, options in {
        "fp32": {},
        "nearest": {"storage": torch.bfloat16},
        "random": {"storage": torch.bfloat16, "rounding": 3},
    }.items():
        held = {"w": Parameter(torch.full((64, 64), 1.5))}
        rule = build(held, lr=2e-4, **options)
        for step in range(200):
            held["w"].grad = gradient.clone()
            rule.step(at=step)
        moved[how] = (1.5 - held["w"].detach()).flatten()
        assert how == "fp32" or torch.equal(held["w"], held["w"].bfloat16().float())
    along = {
        how: (way @ moved["fp32"] / moved["fp32"].square().sum()).item()
        for how, way in moved.items()
    }
    assert along["nearest"] == 0 and along["random"] == pytest.approx(1.0, abs=0.05)


def test_a_resumed_rule_rounds_on_as_if_nothing_had_happened() -> None:
    def steps(rule, some: range) -> None:
        for step in some:
            rule.parameters["w"].grad = torch.randn(
                8, 8, generator=torch.Generator().manual_seed(step)
            )
            rule.step(at=step * 8)

    def fresh() -> AdamW:
        return AdamW(
            {"w": Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(9)))},
            storage=torch.bfloat16,
            rounding=0,
        )

    whole, first, second = fresh(), fresh(), fresh()
    steps(whole, range(6))
    steps(first, range(3))
    second.parameters["w"].data.copy_(first.parameters["w"])
    for name, tensor in first.state().items():
        second.state()[name].copy_(tensor)
    steps(second, range(3, 6))
    assert torch.equal(whole.parameters["w"], second.parameters["w"])


def test_the_start_is_rounded_to_nearest_so_that_arms_begin_alike() -> None:
    start = torch.randn(100, generator=torch.Generator().manual_seed(0))
    held = {"w": Parameter(start.clone())}
    AdamW(held, storage=torch.bfloat16, rounding=0)
    assert torch.equal(held["w"], start.bfloat16().float())


def test_rules_that_keep_weights_differently_are_not_joined() -> None:
    with pytest.raises(ValueError, match="keep weights differently"):
        Joint(
            [
                AdamW({"a": Parameter(torch.zeros(2))}),
                AdamW({"b": Parameter(torch.zeros(2))}, storage=torch.bfloat16),
            ]
        )


def test_the_cure_needs_something_to_cure() -> None:
    with pytest.raises(BadInput, match="nothing is rounded.*--set precision.storage=bf16"):
        phrase("spark + stochastic_rounding")
    assert phrase("spark + bf16_storage + stochastic_rounding").precision.rounding == "stochastic"


@pytest.mark.parametrize("text", ["spark", "spark + muon"])
def test_witnesses(text: str, tiny, cache) -> None:
    def built(more: str):
        run = tiny(text + more)
        return assemble(run, 0, System(), Feed(run, 0, cache))

    both = built(" + bf16_storage + stochastic_rounding + bf16_optimizer_state")
    assert StochasticRounding().witness(both) and BF16OptimizerState().witness(both)
    for more in ("", " + bf16_storage"):
        assert not StochasticRounding().witness(built(more)) and not BF16OptimizerState().witness(
            built(more)
        )


def test_memory_is_what_a_parameter_holds() -> None:
    """Weight 4, gradient 4, two moments 8: half of the last is saved; Muon remembers one number."""

    def each(text: str) -> float:
        run = phrase(text)
        return sum(weights_memory(run, RankLayout()).values()) / parameters(run)

    assert (each("spark"), each("spark + muon"), each("spark + ema")) == (16, 12, 20)
    assert each("spark + bf16_optimizer_state") == 12
    assert each("spark + muon + bf16_optimizer_state") == 10


def test_memory_of_a_built_run_agrees_with_the_table(tiny, cache) -> None:
    def held(text: str) -> float:
        run = tiny(text)
        built = assemble(run, 0, System(), Feed(run, 0, cache))
        tensors = [*built.step.parameters(), *built.optimizer.state().values()]
        found = sum(t.numel() * t.element_size() for t in tensors)
        parts = weights_memory(run, RankLayout())
        return found / (parts["weights"] + parts["optimizer"])

    assert held("spark") == pytest.approx(1, rel=0.01)
    assert held("spark + bf16_optimizer_state") == pytest.approx(1, rel=0.01)
    # Muon leaves embeddings and vectors to AdamW, which are a larger part of a tiny model than of a
    # large one.
    assert held("spark + muon") == pytest.approx(1, rel=0.15)


def test_memory_of_a_lever_is_that_of_the_whole_step() -> None:
    spark, ema = phrase("spark"), phrase("spark + ema")
    assert UseEMA().cost(spark) == UseEMA().cost(ema)
    assert UseEMA().cost(spark).memory == step_memory(ema) / step_memory(spark) > 1


def test_muons_share_falls_with_tokens_per_batch() -> None:
    def share(run: RunSpec, batch: int) -> float:
        return 1 - 1 / UseMuon().cost(put(run, "budget", Budget(images=batch, batch=batch))).flops

    run = phrase("prx_256")
    shares = [share(run, 65_536 // 256 * more) for more in (1, 4, 16)]
    assert run.tokens == 256 and shares == sorted(shares, reverse=True)
    large = share(phrase("prx_pixels_1024"), 262_144 // 1024)
    # the card's numbers are the formula's
    assert f"{shares[0]:.0%} of".replace("%", " %") in UseMuon.card.says
    assert f"{large:.0%} with 262,144".replace("%", " %") in UseMuon.card.says


def test_a_store_in_fp32_touches_nothing() -> None:
    probe = torch.randn(10)
    before = probe.clone()
    StoredWeights(seed=1).keep({"w": probe}, at=0)
    assert torch.equal(probe, before)
