"""Runs that are lost on the way."""

import pytest

from fulcrum.training.session import perform


class Lost(Exception):
    """As kill -9 would."""


@pytest.fixture(scope="session")
def lose():
    """Perform an order until some images are seen, and lose the process there."""

    def until(order, images):
        def observers(built, folder, state):
            def look(seen):
                if seen.state.images >= images:
                    raise Lost

            return [look]

        with pytest.raises(Lost):
            perform(order, lambda text: None, observers)

    return until
