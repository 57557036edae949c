"""Checks of a log: sends return offsets, polls return offsets and values.

``family`` says how a workload records itself, and lists the checks. ``views`` is what they share; then ``integrity``
(what an offset and a value may hold), ``loss`` (what must stay), ``order`` (of sends) and ``polls`` (of reads).
``unflushed`` (what a power loss may take), ``replicas`` and ``holes`` (what the disks hold), and ``epochs`` (where each
leader begins) are families of their own.
"""
