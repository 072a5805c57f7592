"""Live schedulers. Empty so far; reaches neither gymnasium, torch nor ``learn``."""
