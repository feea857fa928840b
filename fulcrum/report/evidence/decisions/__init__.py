"""Training decisions as the kept studies judged them: ranked, asked again elsewhere, and held against published claims."""
