"""checkers/log."""
