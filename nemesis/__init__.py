"""Faults: which, when, on whom, and the proof that they took effect.

Reading order: ``target`` (whom), ``trigger`` and ``schedule`` (the data), ``fault`` (what a fault is); then the faults:
of links on ``cuts`` and ``cutting`` (``partition``, ``one_way``, ``fast_fail``), of processes (``kill``, ``stop``,
``restart``, ``hold``, ``zookeeper``), of consumers (``consumer``), of sessions (``expire``), of files (``damage``), of
machines (``freeze``, ``power_loss``, ``clock``); ``catalogue`` (their names), ``draw`` (the random nemesis),
``conductor`` (plays a schedule), ``row`` (what it reports), ``plan`` (a schedule for displays).

Everything here speaks to ``assay.cluster.node`` and to the finders of ``assay.cluster.system`` alone, and knows no time
but the running loop's: the same code runs against containers and in the simulation.
"""
