"""Checks of the harness's observations of the servers themselves.

- ``process_exits``: no process ends by itself
- ``invariants``: the system's own invariants hold at every event
- ``acknowledged_state``: the replicas have a record at the moment of its acknowledgement

The package imports the modules that all checks share; ``checkers.families`` imports it.
"""
