"""Names of the files in a run's directory."""

CONFIG = "config.toml"
PROGRESS = "progress.jsonl"
CHECKPOINT = "checkpoint.safetensors"
BEST = "best.safetensors"
LAST = "last.safetensors"
DIAGNOSIS = "diagnosis.json"
