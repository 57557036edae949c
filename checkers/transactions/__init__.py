"""checkers/transactions."""
