"""Fulcrum: a laboratory for training text-to-image models."""
