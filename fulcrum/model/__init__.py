"""The transformer: tokens in, a prediction and its taps out; parameter names are those of diffusers' PRX."""
