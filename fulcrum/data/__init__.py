"""Data: from a source of captioned pictures to the raw batch of any position in the global
order."""
