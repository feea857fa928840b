"""Terms of the loss."""
