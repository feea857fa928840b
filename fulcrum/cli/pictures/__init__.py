"""Commands for pictures and captions of one's own."""
