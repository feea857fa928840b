"""The run: build, step, loop, state, checkpoints, observers."""
