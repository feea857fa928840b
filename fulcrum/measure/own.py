"""The former place of `OwnExtractor`: cards hold the hashes of people's own files, which import it from here."""

from fulcrum.measure.user_metrics import OwnExtractor

__all__ = ["OwnExtractor"]
