"""system_under_test/controller."""
