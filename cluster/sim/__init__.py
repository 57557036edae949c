"""A whole cluster in one process and in virtual time, deterministic by its seed.

- ``loop``: the event loop
- ``process``: what kill and stop act on
- ``network``: hosts and links
- ``packet_shaping``: late and lost packets
- ``server``: a listening socket
- ``transport``: one end of a connection; ``sender``: its sending side
- ``filesystem``: visible and durable files
- ``disk``: a node's disk; ``disk_slowness``: a slow one; ``disk_strikes``: a failing one
- ``snapshot``: snapshots of files
- ``runtime``: what a process gets from the simulation
- ``disk_faults``: faults of a node's disk
- ``second_copy``: a second copy of a process
- ``node``, ``cluster``: put everything together
- ``zookeeper``: ZooKeeper servers and client

It uses no clock, no threads and only random numbers from the seed. A test checks this for all code that runs here.
Imports ``cluster.node``, ``cluster.system`` and ``cluster.naming``; only ``harness.run`` imports it.
"""
