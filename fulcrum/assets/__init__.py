"""The shipped frozen parts, with a card each, and the one command that builds them."""
