"""cluster/sim."""
