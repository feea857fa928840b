"""The denoiser: a transformer over image tokens that attends to text."""
