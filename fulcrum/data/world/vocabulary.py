"""The closed world's nouns and adjectives, with the numbers that give each of them a look."""

import re

WORLD_VERSION = 2  # part of every key: raise it when any scene, picture or caption changes
MAX_OBJECTS = 3

SHAPES = ("circle", "square", "triangle", "diamond", "ring", "cross", "star")
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
TEXTURES = ("plain", "striped", "dotted", "checkered")
SIZES = ("small", "medium", "large")
PLACES = ("top left", "top", "top right", "left", "centre", "right", "bottom left", "bottom", "bottom right")
BACKGROUNDS = ("plain", "gradient", "horizon", "striped")
BACKGROUND_COLOURS = ("white", "cream", "sand", "grey", "sage", "mauve", "slate", "charcoal")

# Saturated, and at least 75 (Euclidean, of 255) from each other and from every background colour.
COLOUR_RGB = (
    (222, 38, 42),
    (246, 134, 24),
    (250, 214, 40),
    (44, 164, 68),
    (54, 202, 222),
    (40, 82, 214),
    (126, 50, 178),
    (246, 118, 190),
)
BACKGROUND_RGB = (
    (246, 246, 244),
    (240, 230, 206),
    (208, 190, 158),
    (166, 167, 170),
    (160, 176, 152),
    (178, 156, 170),
    (98, 112, 130),
    (54, 56, 64),
)

# Image side = 1, y points down. Each size is a third wider than the last: 3.8, 5.0 and 6.4 pixels of radius at 32 px.
RADII = (0.120, 0.155, 0.200)
# Columns, and rows, of the 3 x 3 places. A quarter apart, so that a model's tokens (8 px wide) lie to an object alike at
# every place: a shape need not be learned nine times over.
CENTRES = (0.25, 0.50, 0.75)

TOKEN = re.compile(r"[a-z]+|[.,;]")


def tokenize(text: str) -> list[str]:
    """Words and marks of a text; anything else separates them."""
    return TOKEN.findall(text.lower())
