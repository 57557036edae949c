"""checkers/groups."""
