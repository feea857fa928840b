"""Where cells run: worker processes side by side, under torchrun, on Ray; how many fit, and how one was lost."""
