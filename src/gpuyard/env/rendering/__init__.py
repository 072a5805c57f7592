"""Environments as text and as pictures."""
