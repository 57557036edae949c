"""Driver processes, one for each foreign client: each knows its client's own interface, and the tests know none."""
