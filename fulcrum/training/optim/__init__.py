"""Optimizers, schedules and the storage of weights."""
