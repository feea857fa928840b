"""Rules about comparisons: arms, seeds, outputs, configurations that do what they say."""
