"""What tests of studies share: the smallest plan, and cells with given values."""

from fulcrum.study.plan import Plan

SMALL = ("model.width=32", "model.depth=4", "model.heads=2", "budget.batch=8", "data.source.count=64", "sample.steps=2",
         "optim.lr=3e-3")


def plan(**changes):
    given = {"title": "Small", "baseline": "spark", "arms": ("short_captions", "bf16_storage"), "seeds": (0, 1),
             "images": 48, "settings": SMALL, "samples": 64, "compile": False, **changes}
    return Plan(**given)


def cells_of(values, metric, better="higher"):
    """arm -> values by seed, as finished cells that hold one metric."""
    card = {"metric": metric, "better": better, "estimator": "", "interval": "", "n": 64}
    return {arm: {seed: {"metrics": {metric: {"value": float(value), "low": 0.0, "high": 1.0, "card": card}}}
                  for seed, value in enumerate(per_seed)} for arm, per_seed in values.items()}
