"""harness/stored."""
