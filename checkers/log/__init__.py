"""Checks of a log: sends return offsets, polls return offsets and values.

``family`` says how a workload records itself, and lists the checks. ``views`` is what they share; then ``integrity``
(what an offset and a value may hold), ``loss`` (what must stay), ``order`` (of sends), ``polls`` (of reads) and
``ends``. Statements held against each other: ``positions`` (of readers), ``altered`` (records), ``retention`` (log
starts), ``times`` (look-ups), ``stuck`` (readers); ``incarnations`` takes keys apart.
``unflushed`` (what a power loss may take), ``replicas`` and ``holes`` (what the disks hold), and ``epochs`` (where each
leader begins) are families of their own.
"""
