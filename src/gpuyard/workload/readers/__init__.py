"""Readers of traces and accounting logs: one file a format, and what several of them share."""
