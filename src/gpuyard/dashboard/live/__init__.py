"""Live agents as the dashboard shows them: from their journals, so that a page outlives its agent."""
