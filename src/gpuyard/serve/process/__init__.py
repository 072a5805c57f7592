"""The agent as a process: its rounds, signals, socket, counters and logs, and the files of an installation.

``cli`` imports it; watchdogs use its log.
"""
