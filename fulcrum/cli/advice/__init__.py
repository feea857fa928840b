"""Commands that tell what may be changed, what is wrong and what to try next."""
