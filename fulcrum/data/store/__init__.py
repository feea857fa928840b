"""What an import writes and training reads: shards, tables, ledger and card of the user's pictures."""
