"""Flow matching: the path, noise, sampling and guidance."""
