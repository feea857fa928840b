"""The shipped frozen networks, weights and cards only; tools/assets fitted them."""
