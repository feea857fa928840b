"""The statistics: effects, the family of arms, looks, early stops, verdicts."""
