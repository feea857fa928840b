"""The Python API of the README: a Step in one's own loop."""

import re
from pathlib import Path

import torch

from fulcrum import build, feed, phrase

TINY = ("model.width=32", "model.depth=4", "model.heads=2", "budget.batch=8", "data.source.count=64")


def test_the_readme_loop_learns(cache):
    run = phrase("spark + tread", *TINY)
    step, data = build(run), feed(run, cache=cache)
    optimizer = torch.optim.AdamW(step.parameters(), lr=3e-3)
    losses = []
    for images in range(0, 30 * run.budget.batch, run.budget.batch):
        loss = step(*data.at(images)).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_the_lines_of_the_readme_run(cache):
    lines = re.search(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.S).group(1)
    small = lines.replace('phrase("spark + tread")', f'phrase("spark + tread", *{TINY})').replace(
        "feed(run)", f"feed(run, cache={str(cache)!r})"
    )
    assert small.count("model.width") == small.count("cache=") == 1
    names = {}
    exec(small, names)
    assert names["losses"].total.item() > 0 and all(p.grad is not None for p in names["step"].backbone.blocks.parameters())


def test_parameter_counts_of_the_published_models():
    from fulcrum.spec.system import System
    from fulcrum.train.build import Context, backbone_of

    with torch.device("meta"):
        for name, expected in (("prx_256", 1_170_691_648), ("prx_pixels_1024", 1_177_215_744)):
            backbone = backbone_of(Context(phrase(name), 0, System()))
            assert sum(p.numel() for p in backbone.parameters()) == expected
