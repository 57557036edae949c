"""Checks of registers: unique writes, reads, and CAS operations that chain values together.

``views`` says how a workload records itself, and is what the checks share; ``chains`` runs the two fixpoints;
``values`` (what may be read at all) and ``order`` (in which order) are the checks; ``family`` lists them.
Imports what all checks share; ``checkers.families``, the harness and the workloads import ``family``.
"""
