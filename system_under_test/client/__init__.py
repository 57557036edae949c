"""Asynchronous client library whose errors say whether a request may have taken effect.

Foundations, in reading order:

- ``errors``: the meaning of each error
- ``connection``, ``pool``: sockets
- ``metadata``: leaders of partitions
- ``config``: all settings; ``properties`` reads them from a file

Producing:

- ``producer``, on ``sender`` with ``delivery``
- ``partitioner``, ``serializer``
- ``queued_sender`` with ``callbacks``: for ``producer.type=async``

Consuming:

- ``consumer`` with ``multi_fetch``: stateless reads
- ``group_consumer`` with ``positions``, on ``membership`` with ``coordinated`` and ``assignors``: Kafka's groups
- ``draft_consumer`` on ``draft_membership``: the draft's groups
- ``zookeeper_groups``: the design before both

Other modules:

- ``admin``: creates, changes, moves and describes topics
- ``traits``: the parts that a historic defect replaces

The package imports ``network``, ``protocol``, ``records`` and ``zookeeper``. Workloads and tests import it; no part of
the broker does. docs/broker/client.md is its guide.
"""
