"""What surrounds a reader: where its bytes come from, what its report warns of and where it is kept."""
