"""Many processes: starting, sharding, dtypes, reductions."""
