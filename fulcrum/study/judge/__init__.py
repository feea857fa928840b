"""From finished cells to verdicts: effects, ranking, contrasts, findings."""
