"""Terms: the addends of the loss."""
