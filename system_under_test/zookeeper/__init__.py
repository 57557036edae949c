"""system_under_test/zookeeper."""
