"""Train one run: build the model, feed it, step, observe, save, draw."""
