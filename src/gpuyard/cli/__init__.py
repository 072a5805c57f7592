"""The command line: one file for each group of verbs. Nothing imports it."""

from gpuyard.cli.verbs import BAD_INPUT, DONE, FAILED, INTERRUPTED, PIPE_CLOSED, app, main

__all__ = ["BAD_INPUT", "DONE", "FAILED", "INTERRUPTED", "PIPE_CLOSED", "app", "main"]
