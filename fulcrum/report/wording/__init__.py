"""What a page says in words: numbers, sentences about effects and claims, and how far to trust them."""
