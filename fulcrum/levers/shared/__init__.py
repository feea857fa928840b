"""What several levers have in common."""
