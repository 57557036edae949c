"""Checks of transactions on lists and registers, after Adya and Elle.

``family`` lists the checks. ``views`` (what was written and read, and the order of each list) and ``values`` (what a
read may show at all); then cycles: ``edges`` (which transaction comes before which), ``graph`` (components and short
cycles, pure, over arrays), ``real_time`` (that order as edges), ``cycles`` (the check itself), ``words`` (a cycle in
words).
Imports what all checks share; ``checkers.families`` and the workloads import ``family``.
"""
