"""The workloads for the broker: each ``test_`` module is one or more experiments that pytest runs.

A workload is a generator (which operations), a client (how each is done), ``effects`` (what the checks read of it), a
contract and a drain. Read ``test_log`` first, with ``log_operations`` (generators and effects), ``log_client`` and
``log_drain`` (sentinels, and the reading of everything at the end); ``log_ends`` asks for the end of a log.

``broker_contract`` has what the broker promises, in every workload. ``log_names`` are the history's names of things,
``log_messages`` what a send's argument means. ``mixes``, ``topic_mixes`` and ``group_mixes`` have what workloads can
take on in addition: ``mixed_traffic``, ``topic_changes``, ``topic_growth`` and ``topic_lives``, with ``topic_admin``;
``wide_requests`` and ``sweeps`` (many partitions in one request), ``brief_groups`` (groups that come and go).
``send_habits`` are settings of producers that are apart from the usual ones.

- ``test_storage`` and ``test_async_sends`` (``burst_client``): the same log, with other records and other sends.
- ``test_controller``: ``controller_client`` and ``controller_churn``: topics that come and go, partitions that move.
- ``test_group``: ``group_client``, ``group_operations`` and ``group_drain``: members of consumer groups.
  ``members``: what clients with members have in common. ``test_draft_group``: ``draft_client``: the same with the draft
  of their protocol.
- ``test_offsets``: ``offsets_client``: committed offsets as registers.
- ``test_zookeeper_group``: ``connector_client``: the design in which consumers share partitions through ZooKeeper;
  ``test_migration``: ``migration``: a group moves from that design to the other and back.
- ``registers``, ``locks``, ``sets``, ``queues``, ``unique_ids`` and ``monotonic``: workloads for any system that has
  such things, each a module to copy. ``bank``, ``list_append`` and ``long_fork``: for any system with transactions;
  ``sql``: a client of databases that speak SQL.
- systems of others, each with a module that says how it starts and one that tests it: ``test_zookeeper`` (registers;
  in one module), ``test_etcd`` (``etcd_system``; registers judged by a model alone, and a set under its lock:
  ``etcd_gateway`` asks it, ``etcd_lock_client`` is the client of the lock), ``test_redis`` (``redis_system``),
  ``test_redis_cluster`` (``redis_cluster_system``) and ``test_nats`` (``nats_system``; all sets; ``resp`` is Redis'
  protocol), ``test_rabbitmq`` (``rabbitmq_system``; queues), ``test_postgresql``
  (``postgresql_system``), ``test_mariadb`` (``mariadb_system``) and ``test_galera`` (``galera_system``; lists and a
  bank, at levels of isolation), ``test_patroni`` (``patroni_system``: PostgreSQL with replicas, of
  which ``postgresql_primary`` finds the one that takes writes; a set).
- ``kafka_log``: the log through librdkafka, for any broker that speaks Kafka's protocol; with it ``test_kafka``, our
  own broker and Tansu.

They import the harness, the checks' contracts, the broker's client, protocol and deployment, and nothing else
of the broker.
"""
