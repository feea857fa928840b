"""What things cost: FLOPs, parameters and bytes from a run's description alone. No torch in here."""
