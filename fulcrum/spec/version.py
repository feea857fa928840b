"""The version of the science: raised whenever a change makes equal specs train or draw differently."""

SCIENCE = 3
FIRST_SCIENCE = 1  # runs and studies that name no version were made by this one
