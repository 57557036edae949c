"""harness/app."""
