"""ZooKeeper in the simulation.

In this order: ``tree`` (znodes, versions, transactions), ``ensemble`` (what the servers share: sessions, watches, the
quorum), ``wire`` (frames), ``server`` (one process), ``client`` (what the system under test gets). Imports the network
and the processes of ``cluster.sim``, which alone imports it.
"""
