"""Rules about what happens when: warm-up, averages, time shifts, routing, alignment, resuming."""
