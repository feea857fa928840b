"""The processes of a run: what a launcher says, starting, joining, agreement, signs of life, the watch over them."""
