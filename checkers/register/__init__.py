"""checkers/register."""
