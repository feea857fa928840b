"""Rules about how quality is measured."""
