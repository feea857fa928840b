"""Quality: metrics that carry their cards, their direction and their uncertainty."""
