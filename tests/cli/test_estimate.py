"""fulcrum estimate, fulcrum train --dry-run, and a training that is refused for its memory."""

import json
import re

import pytest

from fulcrum.cli import main


def done(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    printed = capsys.readouterr()
    return end.value.code or 0, printed.out, printed.err


def test_the_estimate_of_a_phrase(capsys):
    code, out, _ = done(capsys, "estimate", "prx_256 + tread", "--gpus", "8xH100", "--price", "3")
    assert (
        code == 0
        and "nothing of it was run" in out
        and "3.00 $ an hour and GPU" in out
        and "assumption" not in out
    )
    code, out, _ = done(capsys, "estimate", "prx_256", "--json")
    told = json.loads(out)
    assert told["step"]["total"] == pytest.approx(0.237, abs=0.002) and told["price_is_assumed"]


def test_alone_it_lists_gpus_and_beside_the_published_table_it_says_what_is_met(capsys):
    code, out, _ = done(capsys, "estimate")
    assert code == 0 and "H100" in out and "989 TFLOP/s" in out and "an assumption" in out
    code, out, _ = done(capsys, "estimate", "--published")
    assert (
        code == 0 and "5 of 8 within 10 %" in out and "FLUX.2's autoencoder: its encoder is" in out
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("prx_256", "--gpus", "8xH1000"), "no GPU is known as 'H1000'"),
        (("prx_256", "--gpus", "0xH100"), "asks for 0 GPUs"),
        (
            ("prx_256", "--gpus", "99999999999xH100"),
            "asks for 99,999,999,999 GPUs\n  an estimate is for 1 to 65,536",
        ),
        (("prx_256", "--gpus", "9" * 5000 + "xH100"), "does not say how many"),
        (("prx_256", "--gpus", "many"), "no GPU is known as 'many'"),
        (("prx_256", "--gpus", "8x"), "does not say how many"),
        (("prx_265",), "no recipe is called 'prx_265'"),
        (
            ("prx_256", "--recompute", "some"),
            "--recompute: Input should be 'none', 'selective' or 'full'",
        ),
        (("prx_256", "--mesh", "2x8"), "2 x 8 = 16 processes, and there are 8"),
        (("prx_256", "--mesh", "tp"), "--mesh: must be ddp, fsdp, or replicas x shards"),
        (("prx_256", "--gpus", "H100x0"), "asks for 0 GPUs"),
        (("prx_256", "--gpus", "2.5xH100"), "does not say how many"),
        (("--gpus", "8xH1000"), "no GPU is known as 'H1000'"),
        (("prx_256", "--published"), "--published is a table of its own, without 'prx_256'"),
        (("prx_256 + tred",), "no lever is called 'tred'"),
        (("prx_256", "--gpus", "7xH100"), "cannot be shared by 7 GPUs"),
    ],
)
def test_bad_words_are_told(capsys, words, says):
    code, out, err = done(capsys, "estimate", *words)
    assert code == 2 and says in err and not out


def test_the_words_of_train_and_the_other_order_are_understood(capsys):
    code, out, _ = done(
        capsys, "estimate", "prx_7b", "--gpus", "H100x64", "--recompute", "selective"
    )
    assert code == 0 and "prx_7b on 64xH100" in out
    assert "with --recompute selective; chosen here: --mesh 8x8, --microbatch 4 (of 4 rows)" in out
    assert (
        "filling the cache  5.4 GPU hours, once, for 1,000,000 pictures" in out
        and "price in all" in out
    )


MEMORY = ("train", "prx_256", "--dry-run")


def memory(capsys, *words):
    code, out, err = done(capsys, *MEMORY, "--json", *words)
    assert code == 0, err
    told = json.loads(out)
    return told, {int(ranks): parts for ranks, parts in told["memory"].items()}


def test_the_memory_of_a_dry_run_follows_what_is_asked_for(capsys, monkeypatch):
    told, shared = memory(capsys)
    assert set(shared) == {1, 8, 64} and told["assumed"] == [
        "mesh",
        "microbatch",
        "recompute",
        "compile",
    ]
    # fsdp: all share
    assert shared[64]["weights"] * 64 == shared[8]["weights"] * 8 == shared[1]["weights"]
    told, whole = memory(capsys, "--mesh", "ddp", "--recompute", "full", "--no-compile")
    assert whole[64]["weights"] == whole[1]["weights"] and told["assumed"] == ["microbatch"]
    assert whole[8]["activations"] < shared[8]["activations"] / 2
    # its number of processes is the mesh's
    told, parts = memory(capsys, "--mesh", "2x4", "--microbatch", "8")
    assert set(parts) == {8} and told["ranks"] == 8 and told["assumed"] == ["recompute", "compile"]
    assert (
        parts[8]["weights"] * 4 == shared[1]["weights"]
        and parts[8]["activations"] == shared[8]["activations"] / 4
    )
    monkeypatch.setenv("WORLD_SIZE", "16")
    told, parts = memory(capsys, "--mesh", "4x4")
    assert set(parts) == {16} and parts[16]["weights"] * 4 == shared[1]["weights"]
    code, _, err = done(capsys, *MEMORY, "--mesh", "2x4")
    assert code == 2 and "2 x 4 = 8 processes, and there are 16" in err
    code, _, err = done(capsys, *MEMORY, "--mesh", "tp")
    assert code == 2 and "--mesh: must be ddp, fsdp" in err
    monkeypatch.setenv("LOCAL_RANK", "3")  # of the processes of a machine the first speaks
    assert done(capsys, *MEMORY) == (0, "", "")


def test_a_dry_run_says_what_was_assumed(capsys):
    code, out, _ = done(capsys, "train", "spark", "--dry-run", "--mesh", "2x4")
    assert (
        code == 0 and "for 8 processes, asked for: --mesh 2x4; assumed: all rows in one pass" in out
    )
    # as it would be trained: it is too short to be worth compiling
    assert "--recompute none, --no-compile" in out


def test_a_dry_run_needs_nothing_and_leaves_nothing(capsys, tmp_path):
    code, out, _ = done(
        capsys, "train", "prx_256_repa_e", "--dry-run", "--out", str(tmp_path / "runs")
    )
    assert code == 0 and "1,178,953,792" in out and "cache: tokens of dinov3 at 256 px" in out
    assert "activations, all blocks recomputed" in out and not list(tmp_path.iterdir())
    code, out, _ = done(
        capsys, "train", "spark", "--dry-run", "--json", "--out", str(tmp_path / "runs")
    )
    assert json.loads(out)["parameters_total"] == 692_288
    code, out, _ = done(capsys, "train", "spark", "--dry-run", "--out", str(tmp_path / "runs"))
    assert (
        re.search(r"1 process +of 8\n", out)
        and "of 64: not told, a batch of 32 cannot be shared by so many" in out
    )


def test_laws_on_a_device_that_is_not_here_and_of_a_lever_that_is_none(capsys):
    import torch

    if not torch.cuda.is_available():
        code, _, err = done(capsys, "doctor", "--laws", "--device", "cuda")
        assert code == 2 and "torch finds no GPU" in err
    code, _, err = done(capsys, "doctor", "--laws", "--lever", "treed")
    assert code == 2 and "no lever is called 'treed'" in err and "tread" in err


def test_a_training_that_cannot_fit_is_refused(capsys, tmp_path):
    large = ("model.width=32768", "model.depth=64", "model.heads=256", "data.source.count=8")
    settings = [word for setting in large for word in ("--set", setting)]
    code, _, err = done(
        capsys,
        "train",
        "spark",
        "--images",
        "32",
        "--out",
        str(tmp_path),
        "--no-compile",
        *settings,
    )
    assert code == 2 and "a step of this run needs about" in err and "--dry-run" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--seed", "-1"), "the seed: must be at least 0"),
        (("--seed", "1" + "0" * 23), "the seed: must be at least 0"),
    ],
)
@pytest.mark.parametrize("dry", [("--dry-run",), ()], ids=["dry run", "training"])
def test_a_dry_run_refuses_what_training_refuses(capsys, tmp_path, words, says, dry):
    code, _, err = done(capsys, "train", "spark", *words, *dry, "--out", str(tmp_path / "runs"))
    assert code == 2 and says in err and not (tmp_path / "runs").exists()


def test_alignment_in_a_stage_is_sized(capsys):
    code, out, err = done(capsys, "train", "spark + repa @ (0, 0.5)", "--dry-run")
    assert code == 0 and "term alignment" in out, err
