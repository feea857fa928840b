"""A run's bill: parts add up to what was counted, the machine's side is kept, a price is the
reader's."""

import json

import pytest

from fulcrum.cli import main
from fulcrum.judge.schema import ArmResult
from fulcrum.judge.sentences import parts as told_parts
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import amount, denoiser_training_flops, newton_schulz_share
from fulcrum.training.cost_record import bill, count_costs, in_words, of_arm
from fulcrum.training.run_folder import RunFolder

TINY = [
    word
    for setting in (
        "model.width=32",
        "model.depth=4",
        "model.heads=2",
        "budget.batch=8",
        "data.source.count=64",
        "sample.steps=2",
    )
    for word in ("--set", setting)
]


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out = capsys.readouterr().out
    return end.value.code, out


def test_parts_of_levers_add_up(tiny, tmp_path) -> None:
    """Muon, alignment and its teacher, one by one; what the frozen networks do is spent once a
    picture."""
    run = tiny("spark + muon + repa")
    flops = count_costs(run, tmp_path)
    parts = flops.parts
    assert (
        flops.pictures == 64
        and set(parts.teachers) == {"world"}
        and set(parts.terms) == {"alignment"}
    )
    assert parts.optimizer == pytest.approx(newton_schulz_share(run) * denoiser_training_flops(run))
    assert parts.training() == pytest.approx(
        parts.denoiser + parts.optimizer + parts.terms["alignment"]
    )
    spent = flops.parts.totals(48, flops.pictures, drawn=10)
    assert (
        spent["denoiser"] == 48 * parts.denoiser
        and spent["teacher world"] == 64 * parts.teachers["world"]
    )
    assert spent["evaluation"] == 10 * parts.evaluation and "tuned codec" not in spent
    assert of_arm(run, tmp_path, 10) == spent
    kept = next((tmp_path / "flops").glob("*.json"))
    kept.write_text(kept.read_text()[:20])  # damaged: counted again
    assert count_costs(run, tmp_path) == flops
    arm = ArmResult(name="a", phrase="p", says="s", label="A", cost={"parts": spent})
    assert told_parts(arm).startswith("One seed spends") and "teacher world" in told_parts(arm)


def test_a_trained_codec_is_part_of_every_step(tiny, cache) -> None:
    run = tiny("spark + repa + end_to_end_codec")
    parts = count_costs(run, cache).parts
    assert parts.tuned_codec > parts.codec + parts.decode
    assert set(parts.terms) == {"alignment", "codec_perceptual", "end_to_end_alignment"}
    assert parts.training() == pytest.approx(
        parts.denoiser + parts.tuned_codec + sum(parts.terms.values())
    )


def test_train_and_runs_show_tell_the_same(tmp_path, capsys) -> None:
    words = ("spark", "--images", 24, "--out", tmp_path, *TINY, "--threads", 1)
    code, out = fulcrum(capsys, "train", *words, "--json", "--price", 3.6)
    trained = json.loads(out.strip().splitlines()[-1])
    cost = trained["cost"]
    assert code == 0 and {
        "run",
        "key",
        "seed",
        "images",
        "weights_sha256",
        "seconds",
        "images_per_second",
    } <= set(trained)
    assert cost["steps"] == 3 and cost["images"] == 24 and cost["seconds"] == trained["seconds"]
    assert cost["money"] == pytest.approx(3.6 * trained["seconds"] / 3600)
    assert (
        cost["flops"]
        == pytest.approx(24 * cost["per_image"]["denoiser"])
        == cost["parts"]["denoiser"]
    )
    assert 0 < cost["share_of_peak"] < 1 and cost["peak_memory"] > 50e6
    assert "cost" not in json.loads((tmp_path / trained["key"] / "result.json").read_text())
    _, out = fulcrum(
        capsys, "runs", "show", trained["key"], "--out", tmp_path, "--price", 3.6, "--json"
    )
    assert json.loads(out)["cost"] == cost
    _, out = fulcrum(capsys, "runs", "show", trained["key"], "--out", tmp_path)
    assert "denoiser" in out and "an hour" not in out  # no price was named
    (tmp_path / trained["key"] / "cost.json").write_text("{}")
    # finished already: this process did not train it
    code, out = fulcrum(capsys, "train", *words, "--json")
    again = json.loads(out.strip().splitlines()[-1])["cost"]
    assert (
        again["peak_memory"] is None and again["share_of_peak"] is None and again["money"] is None
    )
    assert again["parts"] == cost["parts"]
    code, out = fulcrum(
        capsys, "runs", "show", trained["key"], "--out", tmp_path, "--price=-1", "--json"
    )
    assert code == 2 and "price" in json.loads(out)["error"]


def test_a_run_that_has_only_begun(tiny, cache, tmp_path) -> None:
    folder = RunFolder(tmp_path)
    assert bill(folder, tiny(), cache) == {} and in_words({}) == "nothing was recorded yet"
    folder.record.write_text(
        '{"images": 16, "seconds": 2.0}\n{"images": 24, "seconds": 3.0}\n{"images": 32, "sec'
    )
    cost = bill(folder, tiny(), cache, price=7200.0)
    assert (
        cost["images"] == 24
        and cost["steps"] == 3
        and cost["money"] == 6.0
        and cost["images_per_second"] == 8
    )
    assert "6 for 3 s at 7200 an hour" in in_words(cost)
    for price in (-1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="per hour"):
            bill(folder, tiny(), cache, price)


def test_amounts() -> None:
    assert [amount(value) for value in (3.0, 1500.0, 2.5e9, 7e20)] == [
        "3 ",
        "1.5 k",
        "2.5 G",
        "700 E",
    ]
