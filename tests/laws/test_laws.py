"""The laws over the whole catalogue: a new lever is tested the moment it is listed. The number of
pairs is printed."""

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import LAWS, Court, missing, tried

pytestmark = pytest.mark.long

# Dynamo looks; nobody else does
LOOKS_ITSELF = "ignore:The .grad attribute of a Tensor that is not a leaf"
PAIRS = [(lever, law) for lever in CATALOG.levers for law in LAWS]


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return Court(CATALOG, tmp_path_factory.mktemp("court"))


def test_the_number_of_pairs(capsys):
    with capsys.disabled():
        print(f"\n{len(PAIRS)} (lever, law) pairs: {len(CATALOG.levers)} levers, {len(LAWS)} laws")
    assert len(PAIRS) == len(CATALOG.levers) * len(LAWS) > 0


@pytest.mark.filterwarnings(LOOKS_ITSELF)
@pytest.mark.parametrize(
    ("lever", "law"),
    [pytest.param(lever, law, id=f"{law}-{lever}") for lever, law in PAIRS],
)
def test_law(lever, law, court):
    cls = CATALOG.levers[lever]
    if hasattr(cls, "network") and (reason := missing(cls.network)):
        pytest.skip(f"{lever}: {reason}")
    LAWS[law](court.case(tried(cls, court.folder)))
