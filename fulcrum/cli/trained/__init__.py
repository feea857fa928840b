"""Commands for runs: train one, draw with it, look at several, hand it on, tidy up."""
