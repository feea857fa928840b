"""The former place of what metrics derive from: cards hold the hashes of people's own files, which import it from here."""

from fulcrum.measure.metrics.base import Distance, RowDistance

__all__ = ["Distance", "RowDistance"]
