"""The client library: asynchronous, and honest about what is known after an error.

To read in this order: ``errors`` (what each error means), ``connection``, ``pool`` (sockets), ``metadata`` (who leads
what), ``config`` (all settings), ``properties`` (read from a file). Producing: ``producer`` on ``sender`` with
``produce_queue`` and ``delivery``, ``partitioner`` and ``serializer``; for ``producer.type=async`` also
``queued_sender`` with ``callbacks`` and ``message_ledger``. Reading: ``consumer`` with ``multi_fetch`` and
``fetch_result`` (stateless). Groups: ``group_consumer`` with ``positions`` on ``membership`` with ``coordinated`` and
``assignors``;
``draft_consumer`` on ``draft_membership`` (the earlier design); ``zookeeper_groups`` (the design before both).
``admin`` creates, changes, moves and describes topics. ``traits`` is what a historic defect changes.

Imports ``network``, ``protocol``, ``records`` and ``zookeeper``. Workloads and tests import it; no part of the broker
does. docs/broker/client.md is its guide.
"""
