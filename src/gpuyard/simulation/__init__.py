"""Simulations: from a name to a policy, from a policy to a schedule, windows of jobs, reasons of waits."""
