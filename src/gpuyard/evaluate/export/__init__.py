"""Rules as another scheduler's configuration, measured: what of a rule's gain is left. ``cli`` imports it."""
