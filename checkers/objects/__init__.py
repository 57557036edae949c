"""checkers/objects."""
