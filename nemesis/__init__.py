"""Faults: which, when, on whom, and the proof that they happened.

What a fault is, in this order: ``target`` (whom it hits), ``trigger``, ``shape`` and ``schedule`` (when; plain data),
``impact`` (what it does to its targets), ``fault`` (probe, inject, observe, heal, prove), ``cuts`` (the links cut now).

The faults: of links on ``cutting`` (``partition`` with ``links`` and ``likeness``, ``one_way``, ``connection``), of
packets (``packets``), of processes on ``process`` (``kill``, ``stop``, ``restart``, ``hold``, ``start_twice``,
``relay``, ``outage``, ``controlled_shutdown``, ``zookeeper``), of consumers (``consumer``), sessions (``expire``),
files and disks (``damage``, ``data_loss``, ``disk_full``, ``slow_disk``, ``in_fsync``, ``disk_error``, ``in_write``),
machines (``freeze``, ``power_loss``, ``clock``, ``memory``), replicas (``move``), servers that leave and join
(``membership`` on ``members``). ``catalogue`` has them by name.

How a run has them: ``draw`` (a random schedule), ``mix`` (one of many kinds), ``conductor`` (plays it) with
``score`` (the steps that are known so far), ``waiting`` (triggers), ``ambush``, ``in_force``, ``recovery``,
``attempt`` and ``reporter``; ``row`` is what it reports.

Imports ``cluster.node`` and the protocols of ``cluster.system`` alone, and knows no time but the running loop's: the
same code runs on containers and in the simulation. ``harness.run``, ``stored``, ``search``,
``plugin`` and ``cli`` import it.
"""
