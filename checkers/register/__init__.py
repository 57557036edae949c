"""Checks of registers: unique writes, reads, and CAS operations that chain values together.

- ``views``: how a workload records itself, and the tables that the checks share.
- ``chains``: the tables that need a fixpoint: which writes count, and where the chain of a value starts.
- ``values``: checks of values that reads return. ``order``: the check of the order of values.
- ``family``: the families of register checks.

The package imports the modules that all checks share. ``checkers.families``, the harness and the workloads import
``family``.
"""
