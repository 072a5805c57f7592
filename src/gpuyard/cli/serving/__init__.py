"""Verbs of ``gpuyard serve``: the agent itself, what it says, and how to stop it. Nothing imports them."""
