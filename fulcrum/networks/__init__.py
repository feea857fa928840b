"""Frozen networks (codecs, text encoders, teachers, judges) and the cache of their outputs."""
