"""What is wrong with a workload, what that means for a simulation, and what to do about it."""
