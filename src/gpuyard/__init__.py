"""gpuyard: train, prove and deploy schedulers for GPU clusters."""
