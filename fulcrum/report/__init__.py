"""Pages and pictures: a study's result as one self-contained page, and as JSON, CSV and Markdown."""
