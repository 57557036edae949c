"""The broker that this project tests, and its clients: a partitioned, replicated log in the manner of Kafka 0.10.

To read in this order: ``broker`` (puts the parts together), ``config`` (every setting), ``handlers`` (which part
answers which request), then a produce request on its way down: ``network`` and ``protocol`` (from the socket to a
request), ``replication`` (leaders, followers, what is acknowledged), ``log`` (segments on the disk), ``records`` (their
bytes) and ``storage`` (files). ``controller`` elects leaders, ``groups`` coordinates consumers, ``zookeeper`` keeps the
cluster's state, ``identity`` and ``registrar`` make a broker part of it, and ``shutdown`` ends that. ``client`` is
what producers and consumers use.

``runtime`` is the seam to the world: ``process`` is a real machine, and a simulation has its own. ``tasks``, ``events``
(the event log) and ``assignors`` serve all layers, ``defects`` names the historic defects that can be built in. For a
tester: ``deployment`` (how a tester runs the broker) on ``topology`` (which nodes are brokers'), ``first_topics`` (made
when it starts), ``broker_rpc`` (asked of brokers; moves replicas), ``disk_inspection`` (what lies on a dead or living
broker's disk), ``cluster_snapshot`` (what has come to its end when a run is over), ``inspection`` (what they have at
the instant of an acknowledgement), ``invariants`` (what must hold at every instant).

Imports nothing else of this project; inside, imports go down only (tests/test_architecture.py, LAYERS). Workloads alone
import it: ``client``, ``deployment``, ``protocol`` and ``runtime``. The harness gets the broker from them as a system,
and does not know this package.
"""
