"""A whole cluster in one process and in virtual time, deterministic by its seed.

- ``loop``: the event loop
- ``process``: what kill and stop act on
- ``network``: hosts and links
- ``packet_shaping``: late and lost packets
- ``server``: a listening socket
- ``host``: hosts, and the interfaces between connections, servers and the network
- ``transport``: one end of a connection
- ``filesystem``: visible and durable files
- ``disk``: a node's disk
- ``disk_faults``: what makes it slow, or fail
- ``runtime``: what a process gets from the simulation
- ``node``, ``cluster``: put everything together
- ``zookeeper``: ZooKeeper servers and client

It uses no clock, no threads and only random numbers from the seed. A test checks this for all code that runs here.
Imports ``cluster.node``, ``cluster.system`` and ``cluster.naming``; only ``harness.run`` imports it.
"""
