"""The estimate of a step: calibrated by one published point, and held against all the others."""

from pathlib import Path

import pytest

from fulcrum import phrase
from fulcrum.advice.published import ARMS, compared, compared_words, seconds
from fulcrum.levers.recipes import prx_7b, prx_256
from fulcrum.spec.memory import RankLayout, kl_encoder_flops, vit_flops
from fulcrum.spec.speed import MEASURED, OTHER, SHARE, Machine, step_time
from fulcrum.training.estimate import estimate

EIGHT = Machine(8, "H100")


def test_what_is_not_counted_is_found_again_from_the_measured_point():
    rows = prx_256().budget.batch / MEASURED.machine.number
    assert (1 / MEASURED.batches - seconds("prx_256", other=0.0)) / rows == pytest.approx(
        OTHER, rel=0.002
    )


def test_every_published_ratio_is_met_or_says_why_not():
    rows = compared()
    assert len(rows) == len(ARMS) == 8
    assert all(row.met or len(row.why) > 80 for row in rows)
    met = {row.name for row in rows if row.met}
    assert met == {
        "TREAD, 256 px",
        "TREAD, 1024 px",
        "SPRINT, 1024 px",
        "REPA, DINOv3",
        "REPA, DINOv2",
    }
    print(compared_words(rows))
    page = (Path(__file__).parents[2] / "docs/estimate.md").read_text(encoding="utf-8")
    for row in rows:  # what the page shows is what is computed
        assert (
            f"| {row.name} | {row.computed_ratio:.3f} | {row.published_ratio:.3f} |"
            f" {row.off:+.1%} |" in page
        )
        assert row.why in page
    assert f"{len(met)} of {len(rows)} are within 10 %" in page
    assert (
        f"takes {1000 * seconds('prx_pixels_1024'):.0f} ms by the estimate and {1000 / 1.33:.0f} in"
        " print" in page
    )
    hours = estimate(phrase("speedrun_24h"), Machine(32, "H200"))["hours"]
    assert (
        f"training takes {hours:.1f}" in page
        and f"{1000 * OTHER:.2f} ms a row" in page
        and f"{SHARE:.0%}"[:-1] in page
    )


def test_the_order_of_the_published_routes_is_kept():
    ratio = {row.name: row.computed_ratio for row in compared()}
    assert (
        1
        < ratio["TREAD, 256 px"]
        < ratio["SPRINT, 256 px"]
        < ratio["TREAD, 1024 px"]
        < ratio["SPRINT, 1024 px"]
    )
    assert ratio["REPA, DINOv3"] < 1


def test_parts_of_a_step():
    run, layout = prx_256(), RankLayout(8, 8)
    one, two = (
        step_time(run, 256, EIGHT, layout),
        step_time(run, 256, Machine(16, "H100"), RankLayout(16, 8)),
    )
    assert two.products == one.products / 2 and two.optimizer == one.optimizer and one.frozen == 0
    assert one.total == pytest.approx(one.counted + one.other) and one.other == 32 * OTHER
    again = step_time(run, 256, EIGHT, layout._replace(recompute="full"))
    assert again.products == pytest.approx(4 / 3 * one.products)
    assert step_time(run, 256, Machine(8, "A100"), layout).products == pytest.approx(
        one.products * 989 / 312
    )
    assert step_time(phrase("prx_256 + muon"), 256, EIGHT, layout).optimizer > 5 * one.optimizer


def test_slow_links_show():
    run = prx_7b()
    slow, fast = (
        step_time(run, 256, Machine(256, name), RankLayout(256, 8)).links
        for name in ("L40S", "H100")
    )
    assert slow > 0.5 and fast < 0.1  # seconds


def test_frozen_networks_have_the_flops_that_their_authors_tell():
    # Stable Diffusion's: the same encoder
    assert kl_encoder_flops(512, 4) == pytest.approx(1.1e12, rel=0.03)
    assert vit_flops(768, 196) == pytest.approx(2 * 17.5e9, rel=0.05) and vit_flops(
        1024, 196
    ) == pytest.approx(2 * 61.6e9, rel=0.05)
    assert vit_flops(999, 196) is None
