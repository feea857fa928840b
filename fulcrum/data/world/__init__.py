"""The embedded world: a closed, deterministic universe of captioned scenes."""
