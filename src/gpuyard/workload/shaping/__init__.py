"""Workloads made from workloads: slices, filters, other loads, estimates, merges."""
