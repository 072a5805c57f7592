"""Verbs that read what other schedulers write: logs of jobs, and lists of nodes. Nothing imports it."""
