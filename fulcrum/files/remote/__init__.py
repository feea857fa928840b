"""Files behind URLs, through fsspec: addresses without their secrets, streams, and local copies."""
