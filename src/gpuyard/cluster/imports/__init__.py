"""Clusters from what schedulers say of their nodes: Slurm, LSF, Kubernetes. It imports the model alone."""
