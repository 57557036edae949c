"""Groups of consumers. There is no coordinator yet: every request about a group says so."""
