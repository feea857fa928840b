"""Before a run: what a dry run counts, what an estimate says, and the refusal of what cannot
fit."""

import inspect
import resource
import subprocess
import sys

import pytest

from fulcrum import phrase
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.recipes import MACHINES
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import parameters
from fulcrum.spec.run import System
from fulcrum.spec.speed import read_machine
from fulcrum.training.dist.machine import free_memory
from fulcrum.training.estimate import (
    chosen_layout,
    count_denoiser,
    dry_run,
    estimate,
    headline,
    require_memory,
    text_tokens,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", MACHINES)
def test_a_full_size_recipe_is_counted_without_memory(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = CATALOG.recipes[name]()
    told = count_denoiser(run, text_tokens(run))
    assert sum(told.parameters.values()) == parameters(run)
    assert told.flops == pytest.approx(told.computed, rel=0.005)
    # KB: a 7 B model has 28 GB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_published_sizes():
    latents = {"width": 3584, "depth": 24, "heads": 28}
    settings = tuple(f"model.{name}={value}" for name, value in latents.items())
    assert parameters(phrase("prx_256", *settings)) == 6_985_046_080
    assert parameters(phrase("prx_7b", "model.condition=no_condition")) == 6_989_766_144
    assert phrase("speedrun_24h").budget.images == 100_000 * 1024 + 20_000 * 512
    assert phrase("prx_7b").tokens == 4096 and phrase("prx_7b").flow.noise_scale == 2.0


@pytest.mark.parametrize("name", MACHINES)
def test_a_recipe_opens_with_its_command_and_what_it_takes(name):
    said = " ".join((inspect.getdoc(CATALOG.recipes[name]) or "").split())
    assert (
        f"-m fulcrum train {name} --device cuda" in said
        and "data.source=folder(path='STORE')" in said
    )
    assert headline(CATALOG.recipes[name](), read_machine(MACHINES[name])) in said


def test_a_dry_run_tells_every_part():
    told = dry_run(phrase("speedrun_24h"), System(compile=True), 32)
    assert told["shapes"]["tokens in blocks 2 to 12 at 512 px"] == "(32, 128, 1792)"
    assert (
        "tokens of dinov3 at 512 px" in told["shapes"]
        and "tokens of dinov3 at 1024 px" not in told["shapes"]
    )
    assert (
        told["memory"][32]["activations, all blocks recomputed"]
        < told["memory"][32]["activations, nothing recomputed"]
    )
    assert told["disk"]["cache"]["pixels at 1024 px"] == 8_700_000 * 3 * 1024**2
    assert told["disk"]["checkpoint"] == parameters(phrase("speedrun_24h")) * 12
    assert set(told["memory"]) == {32, 1, 8, 64} and told["steps"] == 110_000


def test_an_estimate_chooses_what_fits_and_says_what_does_not():
    run = phrase("prx_pixels_1024")
    large, small = (chosen_layout(run, 256, read_machine(text)) for text in ("8xH100", "8xRTX4090"))
    assert (large.microbatch, large.recompute) == (32, "none") and small.microbatch < 32
    told = estimate(run, read_machine("8xRTX4090"), microbatch=32, recompute="none")
    assert not told["fits"] and told["would_fit"][0].startswith("--microbatch")
    assert estimate(run, read_machine("8xH100"), price=1.0)["price"] == pytest.approx(
        estimate(run, read_machine("8xH100"))["price"] / 2
    )
    assert chosen_layout(phrase("prx_7b"), 256, read_machine("16xL40S")).recompute != "none"
    # eight cannot hold it
    assert chosen_layout(phrase("prx_7b"), 256, read_machine("64xRTX4090")).sharing == 64
    seven = estimate(phrase("prx_7b"), read_machine("1xRTX4090"))
    assert not seven["fits"] and "processes" in seven["would_fit"][0]


def test_an_estimate_follows_the_mesh():
    run, eight = phrase("prx_256"), read_machine("8xH100")
    all_have_all, shared = (estimate(run, eight, mesh=mesh) for mesh in ("ddp", "fsdp"))
    assert (
        all_have_all["memory"]["weights"] == 8 * shared["memory"]["weights"]
        and all_have_all["mesh"] == "8x1"
    )
    assert all_have_all["step"]["optimizer"] > 5 * shared["step"][
        "optimizer"
    ] and shared == estimate(run, eight) | {"chosen": ["microbatch", "recompute"]}
    seven, many = phrase("prx_7b"), read_machine("64xL40S")
    far, near = (
        estimate(seven, many, microbatch=1, recompute="full", mesh=mesh)["step"]
        for mesh in ("fsdp", "8x8")
    )
    # every pass gathers weights, over machines where they are shared so
    assert far["links"] > near["links"]
    with pytest.raises(BadInput, match="2 x 8 = 16 processes, and there are 8"):
        estimate(run, eight, mesh="2x8")


def test_what_is_encoded_costs_too():
    told = estimate(phrase("speedrun_24h"), read_machine("32xH200"))
    assert told["price_in_all"] == pytest.approx(told["price"] + 2.0 * told["encoding_gpu_hours"])
    small = estimate(phrase("speedrun_24h", "data.source.count=8700"), read_machine("32xH200"))
    assert small["encoding_gpu_hours"] * 1000 == pytest.approx(told["encoding_gpu_hours"])
    assert small["price"] == told["price"]


@pytest.mark.parametrize(
    ("gpus", "price", "message"),
    [("3xH100", None, "cannot be shared by 3 GPUs"), ("H100", -1.0, "price")],
)
def test_an_estimate_refuses(gpus, price, message):
    with pytest.raises(BadInput, match=message):
        estimate(phrase("prx_256"), read_machine(gpus), price)


def test_a_run_that_cannot_fit_is_refused_with_what_would(monkeypatch):
    run, system = phrase("prx_256"), System()
    with pytest.raises(BadInput) as told:
        require_memory(run, system, 1, free=300e9 * 0.5)
    assert (
        "activations" in told.value.message and "150.0 GB of memory is free" in told.value.message
    )
    assert (
        told.value.hint.startswith("what would fit: --microbatch ")
        and "--recompute full" in told.value.hint
    )
    require_memory(run, system, 1, free=400e9)
    require_memory(run, system.model_copy(update={"microbatch": 8}), 1, free=150e9)
    require_memory(run, system.model_copy(update={"recompute": "full"}), 1, free=150e9)
    require_memory(phrase("pocket"), system)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # two processes of one host have half each
    with pytest.raises(BadInput, match=r"on each of 2 processes, and 100\.0 GB"):
        require_memory(run, system, 2, free=200e9)


def test_a_control_group_bounds_memory(tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    assert free_memory(tmp_path) == 100_000
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 250000\n")
    assert free_memory(tmp_path) == 350_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path) > 1e8
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("2000")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("3000")
    assert free_memory(tmp_path) == 0


def test_a_limit_of_the_shell_counts_as_the_memory_there_is():
    """`ulimit -v`: refused in words before the first step, not by an allocation that fails in the
    middle of it."""
    code = (
        "import resource; from pathlib import Path; from fulcrum.training.dist.machine import"
        " free_memory\nhas = int(Path('/proc/self/statm').read_text().split()[0]) *"
        " resource.getpagesize()\nresource.setrlimit(resource.RLIMIT_AS, (has + (64 << 20),"
        " resource.RLIM_INFINITY))\nprint(free_memory())"
    )
    free = float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )
    assert 16 << 20 < free <= 64 << 20


@pytest.mark.parametrize("stage", ["repa @ (0, 0.5)", "irepa @ (0.5, 1)", "repa @ (0.4, 0.8)"])
def test_a_staged_term_is_counted_in_a_phase_that_has_it(tiny, stage):
    """Its teacher is not in the run outside of the stage."""
    run, always = tiny(f"spark + {stage}"), tiny(f"spark + {stage.partition(' ')[0]}")
    told, whole = dry_run(run, System()), dry_run(always, System())
    assert told["parameters"]["term alignment"] > 0 and told["parameters"] == whole["parameters"]
    assert told["parameters_total"] == whole["parameters_total"]
    assert {part: told["memory"][1][part] for part in ("weights", "gradients", "optimizer")} == {
        part: whole["memory"][1][part] for part in ("weights", "gradients", "optimizer")
    }
    require_memory(run, System())
