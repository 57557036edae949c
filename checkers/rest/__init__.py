"""What was begun must come to its end: checks of the looks at a system at rest, when every fault is healed.

``looks`` has what they share: how long something was so, in one look after the other. Then ``moves``, ``rejoining``,
``obedience``, ``deletion`` and ``retention``; ``family`` puts them together. What must come to an end while clients
work is found elsewhere: ``groups`` (partitions without owners, groups that do not settle) and ``coverage``.
"""
