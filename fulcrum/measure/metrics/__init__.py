"""The metrics themselves: distances over feature rows, shares of attributes, intervals."""
