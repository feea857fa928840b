"""Frozen networks and the caches of what they say: codec, text, teacher, judges."""
