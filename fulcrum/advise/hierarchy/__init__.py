"""The hierarchy from evidence: what to change next, by what was measured here, elsewhere, or only published."""
