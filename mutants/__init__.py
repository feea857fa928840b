"""Faults put into copies of the package on purpose: tests that do not notice them prove nothing."""
