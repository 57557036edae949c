"""system_under_test."""
