"""The documentation as a site: what mkdocs is told beside mkdocs.yml."""
