"""Checks of what the harness saw of the servers themselves.

- ``process_exits``: no process ends by itself
- ``invariants``: the system's own invariants hold at every event
- ``acknowledged_state``: the replicas have a record at the moment of its acknowledgement

Imports what all checks share; ``checkers.families`` imports it.
"""
