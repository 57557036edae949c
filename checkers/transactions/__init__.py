"""Checks of transactions on lists and registers, after Adya and Elle.

- ``family``: lists the checks.
- ``views``: what was written and read, and the order of each list.
- ``values``: checks of what a read may show.
- ``edges``: dependencies between transactions.
- ``graph``: strongly connected components and short cycles, pure functions over arrays.
- ``real_time``: real-time order as edges.
- ``cycles``: the checks for cycles.
- ``words``: describes a cycle in words.

The package imports what all checks share; ``checkers.families`` and the workloads import ``family``.
"""
