"""The brokers' data in ZooKeeper, and the client of a real server.

- ``paths``: the paths of the znodes
- ``znodes``: the content of the znodes as typed values
- ``adapter``: implements ``runtime.ZooKeeper`` with kazoo; the simulation has its own ZooKeeper

The package imports nothing of the broker. ``controller``, ``replication``, ``groups`` and ``client`` import ``paths``
and ``znodes``. A broker on a real machine uses ``adapter``, and so does the harness for clients outside of any node.
"""
