"""The caution of levers that learn from an embedded network: it was fitted to the labels that the metrics ask for."""


def same_labels(network: str) -> str:
    """For the end of a card's warning; `network` is what the lever learns from, as the beginning of a clause."""
    return (
        f"{network} learned shapes, colours, textures and sizes from the same labels of the same world as both judges and "
        "the features of the distances: part of what it passes on is what they look for, and no embedded metric can tell "
        "that part from better pictures"
    )
