"""What a run is: frozen values, pure edits of them, and the phrases people write. No torch in
here."""
