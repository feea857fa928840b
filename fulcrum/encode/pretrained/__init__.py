"""Frozen networks of the ecosystem, from a folder or a hub id: found, hashed, described, loaded, checked."""
