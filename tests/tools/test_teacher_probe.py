"""The page of the teachers says what their cards say."""

from pathlib import Path

import pytest

from fulcrum.files.shipped import card
from tools.assets.pictures import DOMAINS
from tools.assets.teacher_probe import SHIPPED, row

PAGE = Path(__file__).parents[2] / "docs" / "teachers.md"


@pytest.mark.parametrize("name", list(SHIPPED))
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_page_has_the_cards_figures(name, domain):
    assert row(SHIPPED[name], domain, card(name)["quality"]) in PAGE.read_text().splitlines()


def test_the_page_counts_what_was_learned_from():
    built = card("teacher")["built"]
    assert f"{built['outlines']} outlines and {built['patterns']} patterns" in PAGE.read_text()


def test_the_default_knows_more_than_chance_and_less_than_who_was_told():
    """What issue 14 asked of it, on pictures that it was not chosen by."""
    default, supervised = (card(name)["quality"]["real"] for name in SHIPPED)
    assert default["shape"] >= 0.5 and default["colour"] >= 0.7 and default["texture"] >= 0.5
    assert all(default[name] < supervised[name] for name in supervised)
