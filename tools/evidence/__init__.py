"""The evidence page of this repository."""
