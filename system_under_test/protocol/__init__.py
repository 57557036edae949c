"""system_under_test/protocol."""
