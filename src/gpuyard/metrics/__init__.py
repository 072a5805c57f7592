"""Metrics: pure functions of a schedule, each with a name, a unit and a direction.

See docs/contract/metrics.md.
"""
