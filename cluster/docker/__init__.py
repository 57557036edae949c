"""cluster/docker."""
