"""The brokers' data in ZooKeeper, and the client of a real server.

- ``paths``: the paths of the znodes
- ``znodes``: their content as typed values
- ``adapter``: implements ``runtime.ZooKeeper`` with kazoo; the simulation has its own ZooKeeper

Imports nothing of the broker. ``controller``, ``replication``, ``groups`` and ``client`` import ``paths`` and
``znodes``. The process on a real machine imports ``adapter``, as does the harness for clients outside of any node.
"""
