"""Commands for what is measured and compared: metrics, studies, their evidence."""
