"""From pictures to feature rows: the networks, the checks of what goes in, and what is kept of what
comes out."""
