"""Checks of the servers themselves: their event logs, and what the harness observes of them.

- ``leadership``: one leader per epoch, one controller per epoch
- ``process_exits``: no process ends by itself
- ``invariants``: the system's own invariants hold at every event
- ``acknowledged_state``: the replicas have a record at the moment of its acknowledgement

The package imports the modules that all checks share; ``checkers.families`` and the workloads import it.
"""
