"""Training of scheduling networks; the one part that needs torch."""
