"""What users have, read as one stream of named samples; nothing in it is trusted."""
