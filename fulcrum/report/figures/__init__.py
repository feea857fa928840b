"""The figures of a page as inline SVG: the canvas that they share, and one file for each."""
