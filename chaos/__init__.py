"""Attacks on the whole program, counted: kills and disk faults at every write, hostile input."""
