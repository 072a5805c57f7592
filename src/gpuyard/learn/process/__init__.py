"""The processes of a training run: how they start, average, validate, checkpoint and end."""
