"""A number that stands in somebody's file, as a float."""


def as_float(value: int | float) -> float | None:
    """None for an integer of hundreds of digits: no setting of a training means it, and rules reckon with floats."""
    try:
        return float(value)
    except OverflowError:
        return None
