"""Checks of an administrator's changes to topics, partitions and settings.

- ``lost_changes``: acknowledged changes must be in effect after the last fault
- ``rejected_changes``: changes that were certainly rejected must not have happened

The package imports the modules that all checks share, and ``liveness.snapshots``; ``checkers.families`` imports it.
"""
