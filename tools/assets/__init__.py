"""Fits every shipped network: python -m tools.assets."""
