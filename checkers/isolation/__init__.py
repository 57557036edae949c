"""Isolation levels of transactions: does some order of a history's transactions keep a level's formula?

- ``levels``: the table of levels, each with the formula that defines it.
- ``transactions``: a history with integers for transactions and keys.
- ``precedence``: edges with reasons, orders and shortest cycles.
- ``weak_levels``: the edges that levels without a search demand.
- ``saturation``: serializability and snapshot isolation as a polygraph, and what follows from it.
- ``clocks``: what real time and the reads say about the order of events.
- ``scheduler``: quickly finds a legal order near the order of times, if there is one.
- ``decomposition``: parts whose choices are decided on their own.
- ``search``: decides the choices that saturation leaves open.
- ``solver``: decides these choices by a SAT solver, if python-sat is installed.
- ``refutation``: cycles of transactions, and choices between two edges, that refute a level.
- ``explain``: names and describes refutations.
- ``certificate``: verifies the order of a pass.
- ``certificate_replay``: verifies the order in a certificate file, in plain Python, without the code of the checker.
- ``level_check``: the verdict for one level.
- ``exposure``: the reads that could have contradicted a level.

The algorithms need Python and numpy; python-sat is optional. ``checkers.transactions`` imports the package, reads
the history and reports the findings.
"""
