"""The parts of the evidence page, each as lines of Markdown."""
