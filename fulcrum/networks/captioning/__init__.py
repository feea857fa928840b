"""Write new captions for the pictures of a store."""
