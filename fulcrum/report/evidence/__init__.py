"""The page of all kept studies: one ranking, the published claims beside what was seen, pictures, and what is not known."""
