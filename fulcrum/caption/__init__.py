"""Captions as infrastructure: captioners, versioned prompts, answers in blocks that can be resumed, and the new store."""
