"""Checks of an administrator's changes to topics, partitions and settings.

- ``lost_changes``: an acknowledged change must be there in the end
- ``rejected_changes``: a change that was certainly rejected must not have happened

The package imports what all checks share, and ``liveness.snapshots``; ``checkers.families`` imports it.
"""
