"""Clients, operations and mixes of the example broker; the tests are in the folder above.

- ``verbs``: base classes of operations and clients. Read it first.
- the log: ``log_client``, ``log_operations``, ``log_drain``, ``log_messages``, ``log_names``
- other requests: ``multi_partition_requests``, ``multi_fetch_operations``, ``bursts``, ``producer_profiles``
- groups: ``group_client``, ``group_operations``, ``group_member``, ``group_drain``, ``expiring_groups``,
  ``offsets_client``, ``connector_client``, ``migration``
- topics and controllers: ``controller_churn``, ``topic_admin``, ``topic_changes``, ``topic_growth``,
  ``topic_recreation``
- mixes: ``mixes``, ``group_mixes``, ``mixed_traffic``
- the contract: ``broker_contract``

Imports the harness, the contracts of the checks, and the broker's client and protocol.
"""
