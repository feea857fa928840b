"""The levers of precision: each operation by itself, what is kept in bf16, native and emulated
products."""

import json
from typing import get_args

import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import LAWS, Court
from fulcrum.levers.precision import PROBES, BF16Op, Operation
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble, build
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.shard import bf16_products, has_bf16_units
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train
from fulcrum.training.model.transformer import Cast
from fulcrum.training.optim.optimizers import keep_gradients
from fulcrum.training.session import Order, perform

# Dynamo looks; nobody else does
LOOKS_ITSELF = "ignore:The .grad attribute of a Tensor that is not a leaf"
OTHERS = [op for op in get_args(Operation) if op != "norm"]  # the laws try the default


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return Court(CATALOG, tmp_path_factory.mktemp("court"))


@pytest.mark.filterwarnings(LOOKS_ITSELF)
@pytest.mark.parametrize("law", ["edit", "witness", "cost", "compile", "recompute", "leave"])
@pytest.mark.parametrize("op", OTHERS)
def test_every_operation_keeps_the_laws(op, law, court):
    LAWS[law](court.case(BF16Op(op=op)))


def test_each_witness_sees_its_own_operation_only(court, tiny):
    for op in PROBES:
        built = court.assembled(tiny(f"spark + bf16_op(op={op})"))
        assert [name for name, probe in PROBES.items() if probe(built)] == [op]


def test_witnesses_hold_where_products_are_in_bf16(court, tiny):
    """The published recipes multiply in bf16: an operation's own dtype is still told apart,
    emulated or native."""
    for bf16 in ("native", "emulated"):
        built = court.assembled(tiny("spark + bf16_compute"), System(bf16=bf16))
        assert not any(probe(built) for probe in PROBES.values())
        assert CATALOG.levers["bf16_compute"]().witness(built)


def test_an_unknown_operation_is_refused_when_the_phrase_is_read():
    with pytest.raises(
        BadInput, match="should be 'norm', 'softmax', 'rope', 'time' or 'loss', found 'gelu'"
    ):
        parse("spark + bf16_op(op=gelu)", CATALOG)
    with pytest.raises(BadInput, match="precision.norm"):
        parse("spark", CATALOG, ["precision.norm=fp16"])


def test_gradients_are_kept_in_bf16_whatever_the_parts_of_a_batch(tiny, cache):
    """Rounded once, when the whole batch is in them: passes of a batch add up in fp32."""
    run = tiny("spark + bf16_everything")
    seen = []
    for system in (System(), System(microbatch=4)):
        built = assemble(run, 0, system, Feed(run, 0, cache))
        train(built, State(), [], after(1))
        seen.append(
            torch.cat(
                [moment.float().flatten() for name, moment in built.optimizer.state().items()]
            )
        )
    # A sum in another order rounds few of them the other way; parts that were rounded each would
    # move every second one.
    assert (seen[0] != seen[1]).float().mean() < 0.02
    exact = torch.nn.Parameter(torch.zeros(64))
    exact.grad = torch.linspace(0.1, 0.2, 64)
    keep_gradients([exact], torch.float32)
    assert torch.equal(exact.grad, torch.linspace(0.1, 0.2, 64))


def casts(bf16: str, tiny) -> set[Cast]:
    step = build(tiny("spark + bf16_compute"), 0, System(bf16=bf16))
    return {vars(part)["cast"] for part in step.backbone.modules() if "cast" in vars(part)}


def test_the_system_says_how_bf16_is_multiplied(tiny):
    assert casts("native", tiny) == {Cast(torch.bfloat16)}
    assert casts("emulated", tiny) == {Cast(torch.bfloat16, emulated=True)}
    assert casts("auto", tiny) == (
        casts("native", tiny) if has_bf16_units("cpu") else casts("emulated", tiny)
    )


def test_a_cpu_without_units_emulates(monkeypatch):
    has_bf16_units.cache_clear()
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"avx512_f": True, "avx512_bf16": False},
        raising=False,
    )
    assert (
        bf16_products(System()) == "emulated" and bf16_products(System(bf16="native")) == "native"
    )
    has_bf16_units.cache_clear()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert (
        bf16_products(System()) == "native" and bf16_products(System(bf16="emulated")) == "emulated"
    )
    has_bf16_units.cache_clear()


def test_a_checkpoint_says_how_bf16_was_multiplied(tiny, tmp_path):
    """The key does not: results agree within bf16's own error. A run in fp32 leaves it open, as
    older ones do."""
    for phrase, expected in (("spark + bf16_compute", bf16_products(System())), ("spark", "auto")):
        result = perform(
            Order(tiny(phrase), 0, phrase, tmp_path, System(), quiet=True), lambda _: None
        )
        state = max((tmp_path / result["key"] / "checkpoints").glob("*/state.json"))
        assert json.loads(state.read_text())["system"]["bf16"] == expected


def test_emulated_training_follows_the_native_one(tiny, cache):
    """After a few steps both are as far from fp32, and nearer to each other."""
    weights = []
    for phrase, bf16 in (
        ("spark", "auto"),
        ("spark + bf16_compute", "native"),
        ("spark + bf16_compute", "emulated"),
    ):
        run = tiny(phrase)
        built = assemble(run, 0, System(bf16=bf16), Feed(run, 0, cache))
        train(built, State(), [], lambda: False)
        weights.append(
            torch.cat([parameter.detach().flatten() for parameter in built.step.parameters()])
        )
    exact, native, emulated = weights
    assert (native - emulated).norm() < (native - exact).norm()
