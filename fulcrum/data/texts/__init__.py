"""Captions as text, whoever wrote them: language, rules of quality, statistics."""
