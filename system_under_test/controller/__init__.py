"""The controller: elects partition leaders, manages topics, and distributes the metadata to all brokers.

In reading order:

- ``leaders``: pure functions that decide the next leader
- ``term``: the claim on /controller, and the fencing of all writes
- ``cluster_state``: the cluster's state as the controller last read it
- ``partitions``: writes the states that ``leaders`` decides
- ``state_machines``: the state of each partition and replica
- ``broadcast``: requests to the brokers
- ``active_term``: the parts above, while this broker is the controller
- ``work_queue``, ``changes``: the reaction to each trigger
- ``controller``: the entry point: election, and the loop over the queue
- ``topics``, ``topic_actions``, ``assignments``, ``topic_settings``, ``deletion``, ``reassignment``, ``preferred``:
  topics
- ``admin``: requests of users; ``public_control``: requests of any sender; ``broker_requests``: requests of brokers
- ``registration``, ``metadata``: parts that run on every broker
- ``traits``: the behavior that a historic defect replaces

Only the broker imports this package. It imports ``replication`` and the layers below.
"""
