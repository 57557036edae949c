"""What was begun must come to its end: checks of the looks at a system at rest, when every fault is healed.

``looks`` has what they share: how long something was so, in one look after the other. Then of replicas: ``moves``,
``rejoining``, ``obedience``, ``routing``, ``registration``, ``unrest`` (a state written again and again); of topics:
``settings``, ``deletion``, ``retention``; of logs: ``flushing`` and ``marks`` (high watermarks). ``family`` puts them
together. What must come to an end while clients work is found elsewhere: ``groups`` (partitions without owners, groups
that do not settle) and ``coverage``.

Imports what all checks share, and ``log.incarnations``; ``checkers.log``, ``checkers.groups`` and ``checkers.families``
import it.
"""
