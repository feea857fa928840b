"""Several processes: meshes, sharding, collectives, failure detection."""
