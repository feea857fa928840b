"""Update rules: how gradients become new weights."""
