"""Checks of transactions on lists and registers, after Adya and Elle.

- ``family``: the families of transaction checks.
- ``views``: written and read values, and the order of each list.
- ``values``: checks of values that a read may show.
- ``edges``: dependencies between transactions.
- ``graph``: strongly connected components and short cycles, pure functions over arrays.
- ``real_time``: real-time order as edges.
- ``cycles``: the checks for cycles.
- ``level``: judges the isolation level that a contract names.
- ``words``: describes a cycle in words.

The package imports the modules that all checks share; ``checkers.families`` and the workloads import ``family``.
"""
