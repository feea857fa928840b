"""How a backbone is run: compiled, in passes side by side, or frozen for drawing. The sums stay the same."""
