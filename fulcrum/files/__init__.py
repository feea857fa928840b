"""Bytes on disk: atomic writes, locks, hashes, sealed JSON, records; safety is written here,
once."""
