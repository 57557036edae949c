"""The earlier draft of the group protocol: the coordinator itself assigns, and keeps each group in one znode."""
