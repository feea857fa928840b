"""Rules about the texts that pictures are trained with."""
