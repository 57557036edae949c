"""system_under_test/client."""
