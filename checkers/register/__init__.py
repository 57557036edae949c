"""Checks of registers: unique writes, reads, and CAS operations that chain values together.

- ``views``: how a workload records itself, and the tables that the checks share.
- ``chains``: the two fixpoints.
- ``values``: checks of which values may be read. ``order``: checks of their order.
- ``family``: lists the checks.

The package imports what all checks share; ``checkers.families``, the harness and the workloads import ``family``.
"""
