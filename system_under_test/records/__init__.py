"""system_under_test/records."""
