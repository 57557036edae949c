"""Asynchronous client library whose errors say whether a request may have taken effect.

Foundations, in reading order:

- ``errors``: the meaning of each error
- ``connection``, ``pool``: sockets
- ``metadata``: leaders of partitions
- ``config``: all settings; ``properties`` reads them from a file

Producing:

- ``producer``: the interface; uses ``sender`` and ``delivery``
- ``partitioner``, ``serializer``: choose a message's partition, and make its bytes
- ``queued_sender`` with ``callbacks``: the queue for ``producer.type=async``

Consuming:

- ``consumer`` with ``multi_fetch``: stateless reads
- ``group_consumer`` with ``positions``: Kafka's groups; uses ``membership``, ``coordinated`` and ``assignors``
- ``draft_consumer``: the draft's groups; uses ``draft_membership``
- ``zookeeper_groups``: the groups of the old design, which ZooKeeper coordinates

Other modules:

- ``admin``: creates, changes, moves and describes topics
- ``traits``: the parts that a historic defect replaces

The package imports ``network``, ``protocol``, ``records`` and ``zookeeper``. Workloads and tests import it; no part of
the broker does. docs/broker/client.md is its guide.
"""
