"""Pictures from a run: which weights draw, how they are drawn, a trained run as a value, and pictures as files."""
