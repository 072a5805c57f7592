"""Schedules, job by job: for the chart of the cluster, and for trace viewers."""
