"""Training runs as the dashboard follows them: read as they grow, drawn together, paused and finished."""
