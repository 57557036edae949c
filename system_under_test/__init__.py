"""The broker that this project tests, and its clients: a partitioned, replicated log in the manner of Kafka 0.10.

In reading order:

- ``broker``: assembles the parts; ``config``: every setting; ``handlers``: the part that answers each request
- ``network``, ``protocol``: from the socket to a request
- ``replication``: leaders, followers, acknowledgements
- ``log``: segments on disk; ``records``: their bytes; ``storage``: files
- ``controller``: elects leaders; ``groups``: coordinates consumers; ``zookeeper``: the cluster's state
- ``identity``, ``registrar``: make a broker a member of the cluster; ``shutdown``: hands over its leadership
- ``client``: producers and consumers
- ``runtime``: the interface to clocks, files and ZooKeeper; ``process`` implements it for a real machine, and the
  simulation in its own way
- ``clocks``: reads the wall clock and the monotonic clock together
- ``tasks``, ``events`` (the event log), ``assignors``: used by all layers
- ``defects``: the historic defects that can be built in

For testers:

- ``deployment``: how a tester runs the broker, and creates its first topics
- ``broker_rpc``: requests to brokers
- ``disk_inspection``: the content of a broker's disk
- ``cluster_snapshot``: the state of the cluster after a run, and whether it has settled
- ``event_columns``: the meaning of each event's columns
- ``inspection``: the brokers' logs at the instant of an acknowledgement
- ``invariants``: the conditions that must hold at every instant

This package imports nothing else of this project. Inside it, each layer imports only lower layers
(tests/test_architecture.py, LAYERS). Only workloads import it: ``client``, ``deployment``, ``protocol`` and
``runtime``. They give the broker to the harness as a system; the harness does not know this package.
"""
