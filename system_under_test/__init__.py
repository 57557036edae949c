"""The broker that this project tests, and its clients: a partitioned, replicated log in the manner of Kafka 0.10.

In reading order:

- ``broker``: assembles the parts; ``config``: every setting; ``handlers``: the part that answers each request
- ``network``, ``protocol``: from the socket to a request
- ``replication``: leaders, followers, acknowledgements
- ``log``: segments on disk; ``records``: their bytes; ``storage``: files
- ``controller``: elects leaders; ``groups``: coordinates consumers; ``zookeeper``: the cluster's state
- ``identity``, ``registrar``: make a broker part of the cluster; ``shutdown``: ends that
- ``client``: producers and consumers
- ``runtime``: the interface to the world; ``process`` implements it for a real machine, the simulation has its own
- ``clocks``: a moment by the wall clock and the monotonic clock
- ``tasks``, ``events`` (the event log), ``assignors``: serve all layers
- ``defects``: the historic defects that can be built in

For testers:

- ``deployment``: how a tester runs the broker, and creates its first topics
- ``broker_rpc``: requests to brokers
- ``disk_inspection``: the content of a broker's disk
- ``cluster_snapshot``: what has settled when a run is over
- ``event_columns``: what the columns of each event mean
- ``inspection``: the brokers' logs at the instant of an acknowledgement
- ``invariants``: what must hold at every instant

Imports nothing else of this project; inside, imports go down only (tests/test_architecture.py, LAYERS). Only workloads
import it: ``client``, ``deployment``, ``protocol`` and ``runtime``. The harness gets the broker from them as a system,
and does not know this package.
"""
