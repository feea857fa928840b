"""The gallery: a local page that draws one prompt with several runs."""
