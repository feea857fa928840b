"""Rules about the autoencoder between pixels and latents."""
