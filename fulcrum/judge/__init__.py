"""Verdicts: effects, tests, tables, figures and the report page.  Imports no torch."""
