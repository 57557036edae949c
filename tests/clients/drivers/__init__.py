"""One process for each client of others that is tried: it knows that client's own interface, the tests know none."""
