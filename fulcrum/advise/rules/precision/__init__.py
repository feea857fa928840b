"""Rules about the number formats that things are kept and computed in."""
