"""The search for a rule: a grid, then CMA-ES. Nothing here needs torch."""
