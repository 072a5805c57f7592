"""Experience: environments that are stepped, and the steps that are kept."""
