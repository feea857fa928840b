"""The ecosystem: what leaves Fulcrum for other libraries, and what comes in from them."""
