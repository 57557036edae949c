"""The controller: elects partition leaders, manages topics, and distributes the metadata to all brokers.

In reading order:

- ``leaders``: pure functions that decide the next leader
- ``term``: the claim, and the fencing of all writes
- ``cluster_state``: what the controller knows
- ``partitions``: writes what ``leaders`` decides
- ``state_machines``: the state of each partition and replica
- ``broadcast``: requests to the brokers
- ``active_term``: these together, while this broker is the controller
- ``work_queue``, ``changes``: the reaction to each trigger
- ``controller``: the entry point: election, and the loop over the queue
- ``topics``, ``topic_actions``, ``assignments``, ``topic_settings``, ``deletion``, ``reassignment``, ``preferred``:
  topics
- ``admin``, ``public_control``, ``broker_requests``: requests of users, of any sender, and of brokers
- ``registration``, ``metadata``: parts that run on every broker
- ``traits``: the behavior that a historic defect replaces

Imports ``replication`` and what lies below it. Only the broker imports it.
"""
