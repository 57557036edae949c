"""system_under_test/replication."""
