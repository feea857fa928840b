"""Checkpoints and model folders: headers only, in time; values on demand; damage named."""

import json
import time

import pytest
import torch
from safetensors.torch import save_file

from fulcrum.advice.audit import AuditOptions, audit
from fulcrum.advice.tensors import read_header


def rules(path, **options):
    return {fault.rule: fault for fault in audit(str(path), AuditOptions(**options)).faults}


def test_low_weights_are_a_note_for_drawing_and_an_error_beside_an_optimizer(tmp_path):
    low = {"blocks.0.weight": torch.randn(64, 64).bfloat16()}
    save_file(low, tmp_path / "low.safetensors")
    save_file(
        {**low, "optimizer.exp_avg": torch.zeros(64, 64).bfloat16()},
        tmp_path / "training.safetensors",
    )
    save_file({"blocks.0.weight": torch.randn(64, 64)}, tmp_path / "full.safetensors")
    assert rules(tmp_path / "low.safetensors")["weights-in-bf16"].severity == "note"
    training = rules(tmp_path / "training.safetensors")
    assert training["weights-in-bf16"].severity == "error" and "optimizer-state-in-bf16" in training
    assert not rules(tmp_path / "full.safetensors")


def test_an_average_in_bf16(tmp_path):
    save_file({"w": torch.randn(8), "ema.w": torch.randn(8).bfloat16()}, tmp_path / "a.safetensors")
    assert set(rules(tmp_path / "a.safetensors")) == {"average-in-bf16"}


def test_values_are_read_on_demand(tmp_path):
    broken = torch.ones(4096)
    broken[7] = float("nan")
    save_file(
        {"w": broken, "small": (torch.randn(4096) * 0.02).bfloat16()}, tmp_path / "a.safetensors"
    )
    assert "values-not-finite" not in rules(tmp_path / "a.safetensors")
    found = rules(tmp_path / "a.safetensors", values=4096, rate=1e-5)
    assert found["values-not-finite"].place.endswith(": w") and "updates-round-away" in found
    assert "updates-round-away" not in rules(tmp_path / "a.safetensors", values=4096, rate=1e-2)


def test_the_share_of_lost_updates_is_what_bf16_itself_loses():
    from fulcrum.advice.rules_precision import lost_share

    weights = (torch.randn(20_000) * 0.02).bfloat16()
    moved = (weights.float() + 5e-5).bfloat16()
    assert (
        abs(lost_share(weights.float().numpy(), 5e-5, 8) - (moved == weights).float().mean().item())
        < 0.02
    )


def large_header(path, count=1200, side=1000):
    """1.2 billion numbers as a hole in a file: only the header is there."""
    size = 4 * side * side
    header = {
        f"blocks.{n}.weight": {
            "dtype": "F32",
            "shape": [side, side],
            "data_offsets": [n * size, (n + 1) * size],
        }
        for n in range(count)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + count * size)


def test_headers_of_a_large_checkpoint_are_read_in_a_second(tmp_path):
    large_header(tmp_path / "large.safetensors")
    start = time.monotonic()
    audited = audit(str(tmp_path / "large.safetensors"))
    assert (
        time.monotonic() - start < 1
        and "1,200,000,000 numbers" in audited.looked_at
        and not audited.faults
    )


def test_damage_is_named_and_the_other_files_are_looked_at(tmp_path):
    save_file({"w": torch.randn(64).bfloat16()}, tmp_path / "good.safetensors")
    whole = (tmp_path / "good.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-8])
    (tmp_path / "old.bin").write_bytes(b"pickle")
    assert set(rules(tmp_path)) == {"unreadable", "weights-in-bf16"}
    with pytest.raises(Exception, match="cut off or damaged"):
        read_header(tmp_path / "cut.safetensors")


def pipeline(folder, declared, own, latent, given, dtype=torch.float32, norms=False):
    for part, config in (
        ("vae", {"_class_name": own, "latent_channels": latent}),
        ("transformer", {"_class_name": "Net", "in_channels": given}),
    ):
        (folder / part).mkdir(parents=True)
        (folder / part / "config.json").write_text(json.dumps(config))
        tensors = {
            "w": torch.randn(64, 64).to(dtype),
            **({"bn.running_mean": torch.zeros(4)} if norms and part == "vae" else {}),
        }
        save_file(tensors, folder / part / "model.safetensors")
    index = {
        "_class_name": "Pipeline",
        "vae": ["diffusers", declared],
        "transformer": ["diffusers", "Net"],
    }
    (folder / "model_index.json").write_text(json.dumps(index))


def test_a_pipeline_is_looked_at_part_by_part(tmp_path):
    pipeline(tmp_path / "sound", "AutoencoderKL", "AutoencoderKL", 16, 16)
    pipeline(tmp_path / "low", "AutoencoderKL", "AutoencoderKL", 16, 64, torch.bfloat16)
    pipeline(tmp_path / "other", "AutoencoderKL", "AutoencoderKLFlux2", 32, 3, norms=True)
    assert not rules(tmp_path / "sound")
    low = rules(tmp_path / "low")
    assert set(low) == {"weights-in-bf16"} and low["weights-in-bf16"].severity == "note"
    assert set(rules(tmp_path / "other")) == {"codec-class-mismatch", "channels-mismatch"}


def test_lost_updates_are_an_error_only_of_what_is_trained(tmp_path):
    """Text encoder and autoencoder are frozen as a rule, and right to be in bf16."""
    pipeline(tmp_path, "AutoencoderKL", "AutoencoderKL", 16, 16, torch.bfloat16)
    faults = audit(str(tmp_path), AuditOptions(values=4096, rate=1e-7)).faults
    lost = {
        fault.place.removeprefix(f"{tmp_path}: "): fault
        for fault in faults
        if fault.rule == "updates-round-away"
    }
    assert {place: fault.severity for place, fault in lost.items()} == {
        "vae: w": "note",
        "transformer: w": "error",
    }
    assert "if the vae is trained too" in lost["vae: w"].seen
