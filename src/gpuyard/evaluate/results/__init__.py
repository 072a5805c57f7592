"""What is known of directories of results before they are read; loads nothing heavy."""
