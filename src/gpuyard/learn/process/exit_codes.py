"""What a process of a training run says by its exit code. Python itself says 1 for an exception."""

DONE, FAILED, BAD_INPUT, NOT_FINITE = 0, 1, 2, 3
PEER_LOST = 4
"""It ended because another process of the run had: that one knows why."""
INTERRUPTED = 130

REFUSED = "gpuyard: "
"""What the line begins with in which a process says what it does not accept."""
