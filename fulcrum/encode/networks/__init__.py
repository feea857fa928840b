"""The frozen networks that travel with us: codec, text encoder, teacher, judges, pair score."""
