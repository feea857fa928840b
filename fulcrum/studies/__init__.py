"""Studies of our own trainer: plans, cells, workers, kept results."""
