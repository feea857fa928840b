"""lora and train_only: what is refused, what goes together, and what they cost with other settings
than the laws try."""

import pytest
import torch

from fulcrum.levers.laws import assembled
from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import partial_training_flops, sizes_of
from fulcrum.spec.run import AllWeights, System
from fulcrum.training.build import Context, build
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.fillers import Trunk
from fulcrum.training.loop import after, train
from fulcrum.training.model.adapter import is_beside, merged
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights

START = "start=stand_in"


def weights_of(built):
    return {
        name: value.detach().clone() for name, value in built.step.backbone.state_dict().items()
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("spark + lora(targets=[attention_in, knees])", "targets.1: should be 'matrix', 'embed'"),
        ("spark + lora(targets=vector)", "found 'vector'"),
        ("spark + lora(targets=[])", "names nothing"),
        ("spark + lora(rank=0)", "at least 1"),
        ("spark + lora + train_only", "both write model.learned"),
        (
            "spark + muon + train_only(roles=vector)",
            "orthogonalises the matrices of the blocks, and none of them learns",
        ),
        ("spark + lora @ (0, 0.5)", "model.learned"),
    ],
)
def test_what_cannot_be_is_refused(tiny, text, says):
    with pytest.raises(BadInput) as error:
        tiny(text, START)
    assert says in f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize(
    ("lever", "says"),
    [
        ("lora(rank=32)", "rank 32 is no less than the 32 inputs or outputs of 'attention"),
        ("train_only(start=9)", "block 9 was asked for, but the model has blocks 0 to 3"),
        (
            "train_only(roles=head, start=0)",
            "nothing of the model has the role head in the blocks 0 to None",
        ),
    ],
)
def test_what_does_not_fit_the_sizes_is_refused_when_they_are_known(tiny, tmp_path, lever, says):
    """A pipeline brings its own: a phrase alone cannot be wrong about them."""
    run = tiny(f"spark + {lever}", START)
    with pytest.raises(BadInput, match=says):
        perform(Order(run, 0, "test", tmp_path / "out", System(), quiet=True), print)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lever", ["lora", "train_only(roles=matrix)"])
def test_random_weights_are_not_fine_tuned(tiny, tmp_path, lever):
    """Beside layers that begin at zero nothing would learn, and nobody would see it."""
    with pytest.raises(BadInput, match="stay as it was drawn at random.* --start RUN"):
        perform(
            Order(tiny(f"spark + {lever}"), 0, "test", tmp_path / "out", System(), quiet=True),
            print,
        )
    assert not (tmp_path / "out").exists()


PLAN = """
title = "A late change"
baseline = "spark"
arms = ["lora", "train_only(roles=matrix)"]
seeds = [0, 1]
images = 640
settings = ["model.width=32", "model.depth=4", "model.heads=2", "data.source.count=64"]
"""


def test_a_study_of_them_needs_a_trunk(tmp_path, capsys):
    from fulcrum.cli import main

    trunk = 'trunk = "spark"\ntrunk_images = 640\n'
    for name, text, code, says in (
        ("without", PLAN, 2, "the arm 'lora': only a part of the weights learns"),
        ("with", PLAN + trunk, 0, "every arm begins from its seed's trunk"),
    ):
        (tmp_path / f"{name}.toml").write_text(text)
        with pytest.raises(SystemExit) as end:
            main(["study", "plan", str(tmp_path / f"{name}.toml"), "--out", str(tmp_path / "out")])
        printed = capsys.readouterr()
        assert (end.value.code or 0) == code and says in " ".join(
            (printed.out + printed.err).split()
        )


def test_descriptions_without_it_have_the_keys_that_they_had(tiny):
    run = tiny("spark")
    assert "learned" not in run.plain()["model"]
    assert run == put(run, "model.learned", AllWeights())
    assert key(tiny("spark + lora", START), 0) != key(tiny("spark", START), 0)
    one, other = (
        tiny(f"spark + lora(targets={words})", START)
        for words in ("[text, head]", "('head', 'text')")
    )
    assert key(one, 0) == key(other, 0)


@pytest.mark.parametrize(
    "text",
    [
        "lora(rank=2, targets=[matrix, embed, head])",
        "lora(rank=2, targets=head)",
        "lora(rank=4, targets=text)",
        "lora(rank=4, targets=modulation)",
        "train_only(roles=vector)",
        "train_only(roles=head)",
        "train_only(roles=embed)",
        "train_only(roles=[text, modulation])",
        "train_only(roles=matrix, start=-1)",
        "train_only(roles=feed_forward, end=0)",
    ],
)
def test_the_cost_is_the_one_that_is_counted(tiny, text):
    """To the FLOP, of the denoiser alone with a text without padding; the law allows for
    averages."""
    run = tiny(f"spark + {text}", START)
    backbone = build(run, start=run.start.build(Context(run, 0, System()))).backbone
    x_t, t, prompt = torch.randn(2, 8, 8, 8), torch.rand(2), torch.randn(2, 5, 96)
    spent = counted(lambda: backbone(x_t, t, (prompt, None)).pred.sum().backward())
    tokens = (8 // run.model.patch) ** 2
    assert 2 * partial_training_flops(sizes_of(run), tokens, 5, None, run.model.learned) == spent


@pytest.mark.parametrize(
    "other", ["muon", "ema(every=1)", "repa", "bf16_storage", "sprint(drop=0.5)"]
)
@pytest.mark.parametrize("lever", ["lora(rank=2)", "train_only(roles=feed_forward, start=-1)"])
def test_what_is_frozen_stays_to_the_bit_beside_others(tiny, cache, lever, other):
    """In lanes too, where a tap before the first weight that learns has no history."""
    run = tiny(f"spark + {other} + {lever}", START)
    for threads in (1, 2):
        built = assembled(run, Feed(run, 0, cache), System(threads=threads))
        before = weights_of(built)
        train(built, State(), [], after(2))
        moved = {
            name
            for name, value in weights_of(built).items()
            if not torch.equal(value, before[name])
        }
        learning = {
            name for name, weight in built.step.backbone.named_parameters() if weight.requires_grad
        }
        assert moved and moved <= learning < set(before)
        assert "lora" not in lever or all(map(is_beside, moved))
        if other == "bf16_storage":
            held = [value for name, value in before.items() if not name.endswith(".scale")]
            assert all(torch.equal(value, value.bfloat16().float()) for value in held)


def test_what_a_run_with_lora_ends_with_is_merged_where_another_begins(tiny, tmp_path):
    """Its own folder keeps the products apart; a further run, with lora or without, begins from
    their sum."""
    first = perform(
        Order(tiny("spark + lora(rank=2)", START), 0, "one", tmp_path, System(), quiet=True), print
    )
    kept = trained_weights(RunFolder(tmp_path / first["key"]))
    assert any(map(is_beside, kept))
    for text in ("spark", "spark + lora(rank=3)"):
        run = put(
            tiny(text), "start", Trunk(run=first["key"], weights_sha256=first["weights_sha256"])
        )
        start = run.start.build(Context(run, 0, System(), runs=tmp_path))
        own = build(run, start=start).backbone.state_dict()
        plain = {name: value for name, value in own.items() if not is_beside(name)}
        expected = merged(kept)
        assert plain.keys() == expected.keys() and all(
            torch.equal(plain[name], expected[name]) for name in plain
        )
        ups = [value for name, value in own.items() if name.endswith("beside.up")]
        assert all(not value.any() for value in ups) and bool(ups) == ("lora" in text)
