"""What a rank is said to hold is what autograd holds, and what is said to fit fits."""

import subprocess
import sys
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fulcrum import phrase
from fulcrum.levers.recipes import prx_256, speedrun_24h
from fulcrum.spec.flops import parameters
from fulcrum.spec.memory import RankLayout, fitting, rank_memory, row_bytes, step_memory
from fulcrum.spec.run import System
from fulcrum.training.build import Context, assemble, backbone_of
from fulcrum.training.estimate import layout_of
from fulcrum.training.feed import Feed
from fulcrum.training.model.transformer import recompute_blocks

pytestmark = pytest.mark.long

ROWS, WORDS = 2, 16


def held_by_autograd(run, compiled=False, every=0):
    """Bytes of every storage that a forward keeps, parameters aside; less those of one block's copy
    of its weights."""
    backbone = backbone_of(Context(run, 0, System(bf16="native")))
    if every:
        recompute_blocks(backbone, every)
    if compiled:
        from fulcrum.training.model.transformer import compile_blocks

        compile_blocks(backbone)
    own = {weight.untyped_storage().data_ptr() for weight in backbone.parameters()}
    held = {}

    def pack(value):
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            # alive, so that no address is used twice
            held[storage.data_ptr()] = (storage.nbytes(), value)
        return value

    codec, side = run.encode.codec, run.data.size // run.encode.codec.stride
    kept = run.model.route.kept(run.tokens)
    keep = torch.arange(kept).expand(ROWS, kept) if kept < run.tokens else None
    text = torch.zeros(ROWS, WORDS, run.encode.text.width)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        backbone(
            torch.zeros(ROWS, codec.channels, side, side),
            torch.zeros(ROWS),
            (text, None),
            keep=keep,
        )
    return sum(size for size, _ in held.values())


def of_two_blocks(compute, compiled, lever=""):
    """Counted and by formula: four blocks less two, at two sizes, so that neither ends nor weights
    are in it."""
    found, said = [], []
    for size in (64, 128):
        depths = []
        for depth in (5, 3):
            settings = (
                f"data.size={size}",
                "model.width=256",
                "model.heads=4",
                f"precision.compute={compute}",
            )
            run = phrase(f"spark{lever}", *settings, f"model.depth={depth}")
            depths.append(
                (
                    held_by_autograd(run, compiled),
                    ROWS * row_bytes(run, WORDS, RankLayout(compiled=compiled)),
                )
            )
        found.append(depths[0][0] - depths[1][0])
        said.append(depths[0][1] - depths[1][1])
    return found[1] - found[0], said[1] - said[0]


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
@pytest.mark.parametrize("lever", ["", " + tread(start=1, end=1)"])
def test_the_formula_is_what_eager_blocks_keep(compute, lever):
    found, said = of_two_blocks(compute, compiled=False, lever=lever)
    assert said == pytest.approx(found, rel=0.03)


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_the_formula_is_what_computing_every_other_block_again_saves(compute):
    """Of five blocks three; at two sizes, so that no copy of a weight is in it."""
    found, said = [], []
    for size in (64, 128):
        settings = (
            f"data.size={size}",
            "model.width=256",
            "model.heads=4",
            f"precision.compute={compute}",
            "model.depth=5",
        )
        run = phrase("spark", *settings)
        kept, fewer = RankLayout(compiled=False), RankLayout(compiled=False, recompute="selective")
        found.append(held_by_autograd(run) - held_by_autograd(run, every=2))
        said.append(ROWS * (row_bytes(run, WORDS, kept) - row_bytes(run, WORDS, fewer)))
    assert said[1] - said[0] == pytest.approx(found[1] - found[0], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_the_formula_is_what_compiled_blocks_keep(compute):
    found, said = of_two_blocks(compute, compiled=True)
    assert said == pytest.approx(found, rel=0.05)


def test_parts_of_one_rank_and_of_eight():
    run = prx_256()
    alone, shared = (rank_memory(run, 256, RankLayout(ranks)) for ranks in (1, 8))
    assert alone["weights"] == alone["gradients"] == 4 * parameters(run) and alone[
        "optimizer"
    ] == 8 * parameters(run)
    assert shared["weights"] * 8 == alone["weights"] and alone["average"] == 0
    assert alone["weights in bf16"] == 2 * parameters(run) and "weights in bf16" not in shared
    assert shared["activations"] * 8 == alone["activations"]
    assert rank_memory(phrase("prx_256 + ema"), 256, RankLayout(1))["average"] == 4 * parameters(
        run
    )
    assert rank_memory(phrase("prx_256 + muon"), 256, RankLayout(1))["optimizer"] == 4 * parameters(
        run
    )


def test_recomputing_and_smaller_passes_take_less():
    run = prx_256()

    def activations(**layout):
        return rank_memory(run, 256, RankLayout(8, **layout))["activations"]

    assert activations(recompute="full") < activations() / 5
    assert activations(recompute="full") < activations(recompute="selective") < 0.6 * activations()
    assert activations(microbatch=8) == activations() / 4
    assert activations(microbatch=1000) == activations()  # a rank has 32 rows
    assert activations(compiled=False) > 2 * activations()


def test_the_phase_that_needs_most_counts():
    run = speedrun_24h()
    late = rank_memory(run, 256, RankLayout(32))["activations"]
    assert late > 3 * 32 * row_bytes(
        phrase("speedrun_24h", "data.stages=[]", "data.size=512"), 256, RankLayout(32)
    )


def test_what_is_said_to_fit_fits():
    run, layout = prx_256(), RankLayout(8)
    needed = sum(rank_memory(run, 256, layout).values())
    for memory in (0.9 * needed, 0.4 * needed, 0.2 * needed):
        ways = fitting(run, 256, layout, memory)
        assert ways and all(
            sum(rank_memory(run, 256, other).values()) <= memory for _, other in ways
        )
    assert fitting(run, 256, layout, 0.9 * needed)[0][0] == "--microbatch 16"
    assert fitting(run, 256, layout, 1e6) == []


EIGHT_RANKS = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from fulcrum.training.dist.shard import prepare, sum_gradients
from fulcrum.training.dist.ranks import Ranks
from fulcrum.training.dist.collectives import device_mesh
# seven others that answer at once
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
ranks = Ranks(0, 8)
with torch.device("meta"):
    net = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(3)))
mesh = device_mesh(sys.argv[1], ranks)
prepare(net, net, ranks, lambda name, shape: torch.ones(shape), mesh=mesh, gather=torch.bfloat16)
for sent in (False, True):
    sum_gradients(net, sent)
    net(torch.ones(4, 64, dtype=torch.bfloat16)).sum().backward()
    params = [one for layer in net for one in layer._get_fsdp_state()._fsdp_param_group.fsdp_params]
    whole = [one.unsharded_accumulated_grad for one in params]
    own = [one.sharded_param.grad for one in params]
    print(
        sum(grad.nbytes for grad in whole if grad is not None),
        sum(grad.to_local().nbytes for grad in own if grad is not None),
    )
"""


@pytest.mark.parametrize(("mesh", "shards"), [("fsdp", 8), ("2x4", 4), ("ddp", 1)])
def test_gradients_of_several_passes_are_whole_on_every_rank_until_the_last(mesh, shards):
    """FSDP2 shares out a gradient when it sends it: eight ranks that take their rows in passes hold
    eight times as much."""
    done = subprocess.run([sys.executable, "-c", EIGHT_RANKS, mesh], capture_output=True, text=True)
    numbers = 3 * 64 * 64
    assert done.stdout.split() == [
        str(4 * numbers),
        "0",
        "0",
        str(4 * numbers // shards),
    ], done.stderr
    run = prx_256()
    at_once, in_passes = (rank_memory(run, 256, RankLayout(8, shards, rows)) for rows in (None, 8))
    assert at_once["gradients"] == 4 * parameters(run) / shards and in_passes[
        "gradients"
    ] == 4 * parameters(run)
    assert (
        "weights in bf16" not in at_once
        and at_once["gathered blocks"] == in_passes["gathered blocks"]
    )


def test_sharing_among_all_is_a_way_to_fit():
    run, layout = prx_256(), RankLayout(8, 1)
    needed = sum(rank_memory(run, 256, layout).values())
    assert fitting(run, 256, layout, 0.7 * needed)[0][0] == "--mesh fsdp"


class Peak(TorchDispatchMode):
    """Bytes of all storages that are made inside and alive, at their peak."""

    def __init__(self):
        super().__init__()
        self.alive = {}
        self.bytes = self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.alive:
                    self.alive[storage._cdata] = storage.nbytes()
                    self.bytes += storage.nbytes()
                    weakref.finalize(storage, self.gone, storage._cdata)
        self.peak = max(self.peak, self.bytes)
        return made

    def gone(self, storage):
        self.bytes -= self.alive.pop(storage)


@pytest.mark.parametrize(
    "text",
    [
        "spark",
        "pocket",
        "spark + tread",
        "spark + sprint(full_from=none)",
        "spark + repa + muon + ema",
    ],
)
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_a_measured_step_is_within_a_tenth_of_the_table(text, compute, tmp_path):
    settings = ("data.source.count=256", f"precision.compute={compute}")
    run = phrase(text, *settings, "budget.images=6400")
    system = System(threads=1, bf16="native")
    built = assemble(run, 0, system, Feed(run, 0, tmp_path))
    weights = built.weights(0)
    built.step(*built.feed.at(0, 2), weights).total.backward()  # what is made once is made by now
    built.optimizer.zero_grad()
    batch, draw = built.feed.at(0)
    with Peak() as peak:
        built.step(batch, draw, weights).total.backward()
    said = step_memory(run, batch.text[1].shape[1], layout_of(system, 1))
    parts = rank_memory(run, batch.text[1].shape[1], layout_of(system, 1))
    state = [*built.optimizer.state().values(), *built.average.state().values()]
    held = sum(one.nbytes for one in (*built.step.parameters(), *state))
    assert said == pytest.approx(peak.peak + held + parts["inputs"], rel=0.1)
