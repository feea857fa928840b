"""docs/reference and docs/recipes, written from the code: commands, slots of a run, recipes."""
