"""The gallery: a local page on which a person types a prompt and sees several runs draw it from the same noise."""
