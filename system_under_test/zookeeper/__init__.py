"""What the brokers keep in ZooKeeper, and the client of a real one.

``paths`` (where), ``znodes`` (what: typed values). ``adapter`` implements the seam ``runtime.ZooKeeper`` with kazoo;
the simulation has a ZooKeeper of its own.

Imports nothing of the broker. ``controller``, ``replication``, ``groups`` and ``client`` import the first three; the
process on a real machine, and the harness for clients outside of any node, the adapter.
"""
