"""Before the first cell: the plan, its design, the proof that arms differ as they say, power and cost."""
