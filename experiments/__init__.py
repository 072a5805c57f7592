"""Experiments: recipes of gpuyard's own commands, run step by step, and the page of what came out."""
