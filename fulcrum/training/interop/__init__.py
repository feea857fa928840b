"""Import from and export to diffusers, transformers and peft."""
