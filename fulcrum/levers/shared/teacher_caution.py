"""The caution of levers that learn from an embedded teacher: what it was told, and what its supervised sibling was."""


def told_nothing(network: str) -> str:
    """For the end of a card's warning; `network` is what the lever learns from, as the beginning of a clause."""
    return (
        f"{network} was told no attribute and no caption of the world: it learned to see on outlines and patterns that the "
        "world does not have, and by repainting the world's pictures (docs/teachers.md has a probe of what it knows)"
    )


def or_supervised(network: str) -> str:
    """The same, for levers with the setting `teacher`."""
    return told_nothing(network) + (
        "; teacher=supervised learned shapes, colours, textures and sizes from the same labels of the same world as both "
        "judges and the features of the distances: part of what that one passes on is what they look for, and no embedded "
        "metric can tell that part from better pictures"
    )
