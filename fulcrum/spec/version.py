"""The version of the science: raised whenever a change makes equal specs train or draw differently."""

SCIENCE = 1
