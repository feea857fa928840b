"""Advice and proof: the laws that every lever must keep, on real models."""
