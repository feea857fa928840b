"""Advice to people who train with anything: what is wrong with a training, and what it costs them most."""
