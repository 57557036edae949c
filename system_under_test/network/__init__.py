"""system_under_test/network."""
