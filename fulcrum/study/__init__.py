"""Evidence: plans, proofs, paired effects, and verdicts that may be inconclusive."""
