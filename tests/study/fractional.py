"""Plans of fractional designs to try, and levers without a meaning for their tables."""

from tests.study.small import plan

FOUR = ("muon", "bf16_storage", "short_captions", "ema(every=2)")


def levers(count):
    return [f"lever{number}" for number in range(count)]


def fraction(**changes):
    return plan(**{"arms": (), "design": "fractional", "stack": FOUR, **changes})
