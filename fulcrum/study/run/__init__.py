"""Cells: trained and measured in workers, side by side, on Ray or under torchrun."""
