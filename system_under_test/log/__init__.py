"""system_under_test/log."""
