"""system_under_test/storage."""
