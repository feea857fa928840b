"""Many processes: the mesh, sharding, reductions, dtypes, and the system that a run gets when nobody says."""
