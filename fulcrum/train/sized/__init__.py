"""What a run needs, told before anything is spent: a dry run, an estimate, and the refusal of what cannot fit."""
