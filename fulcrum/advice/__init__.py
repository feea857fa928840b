"""Audit of training code and configurations, advice from evidence, and the doctor."""
