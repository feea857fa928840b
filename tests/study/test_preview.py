"""A preview costs a run of over a minute at most its share: fewer pictures are drawn, and that is said once."""

from types import SimpleNamespace

from fulcrum.recipes.spark import spark
from fulcrum.study.run.measuring.preview import SHARE, SHOWN, Preview
from fulcrum.train.state import State


def test_pictures_are_left_out_where_a_look_would_take_too_long() -> None:
    run, lines = spark(), []
    built = SimpleNamespace(run=run, feed=SimpleNamespace(tell=lines.append))
    preview = Preview.__new__(Preview)
    preview.trained, preview.picture_seconds, preview.said = 0.0, 0.1, False

    def count(share, seconds, spent):
        return preview.affordable(
            SimpleNamespace(built=built, state=State(round(share * run.budget.images), seconds=seconds)), spent
        )

    assert count(0.2, 5.0, 3.0) == SHOWN and not lines, "25 seconds in all: nothing is spared"
    preview.trained = 0.0
    assert count(0.2, 100.0, 1.0) == SHOWN and not lines, f"{SHARE} of 100 seconds is enough"
    assert count(0.4, 130.0, 1.0) == 5 and len(lines) == 1  # 0.05 x 30 s, less 1 s, by 0.1 s each
    assert count(0.6, 160.0, 2.0) == 0 and len(lines) == 1
    assert count(1.0, 190.0, 2.0) == 1, "the end is always shown"
    preview.picture_seconds = None
    before_the_first = count(0.8, 220.0, 1.0)  # a second for 512 passes, and a picture takes 24 of them: 0.047 s
    assert before_the_first == SHOWN
