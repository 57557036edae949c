"""The controller: which broker leads each partition, which topics there are, and what all brokers know of that.

To read in this order: ``leaders`` (pure functions: who leads next), ``term`` (the claim, and the fence of all writes),
``cluster_state``, ``partitions`` (writes what ``leaders`` decides), ``state_machines`` (names the state that each
partition and replica is in), ``broadcast`` (requests to the brokers);
``active_term`` (these together, while this broker is the controller); ``work_queue``, ``changes`` (the reaction to each
trigger) and ``controller`` (the entry: election, and the loop over the queue).

Topics: ``topics``, ``topic_actions``, ``assignments``, ``topic_settings``, ``deletion``, ``reassignment``,
``preferred``. Requests: ``admin``, ``public_control``, ``controlled_shutdown``, ``damage``. On every broker:
``registration``,
``metadata``. ``traits`` is what a historic defect changes.

Imports ``replication`` and what lies below it. Only the broker imports it.
"""
