"""Picture stores: what an import writes and training reads."""
