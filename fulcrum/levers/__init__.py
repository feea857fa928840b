"""What we may change: one file per lever, one explicit catalogue."""
