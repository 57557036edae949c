"""A simulated cluster: all nodes in one process and in virtual time, deterministic by its seed.

- ``loop``: the event loop
- ``process``: simulated processes, which can be killed and stopped
- ``network``: hosts and links
- ``packet_shaping``: late and lost packets
- ``server``: a listening socket
- ``host``: hosts, and the interfaces between connections, servers and the network
- ``transport``: one end of a connection
- ``filesystem``: visible and durable files
- ``disk``: a node's disk
- ``disk_faults``: slow and failing disks
- ``runtime``: disk, clock and random source of a process
- ``node``, ``cluster``: the nodes, and the cluster of all of them
- ``zookeeper``: ZooKeeper servers and client

The simulation uses no clock and no threads, and all random numbers come from the seed. A test checks this for all code
that runs in it.
Imports ``cluster.node``, ``cluster.system`` and ``cluster.naming``; only ``harness.run`` imports it.
"""
