"""Workloads: each ``test_`` module is one or more experiments that pytest runs.

A workload consists of a generator of operations, a client that executes them, ``effects`` (an operation's rows for the
checks), a contract and a drain. Read ``test_log`` first.

Tests of the example broker, with the modules in ``broker``:

- ``test_log``, ``test_storage``, ``test_async_sends``: the partitioned log
- ``test_controller``: created and deleted topics, moved partitions
- ``test_group``, ``test_draft_group``, ``test_zookeeper_group``, ``test_migration``: consumer groups
- ``test_offsets``: committed offsets as registers

``generic`` has workloads for any system. ``systems`` deploys third-party systems; their tests are ``test_zookeeper``,
``test_etcd``, ``test_redis``, ``test_redis_cluster``, ``test_nats``, ``test_rabbitmq``, ``test_postgresql``,
``test_mariadb``, ``test_galera``, ``test_patroni`` and ``test_kafka``.

Workloads import the harness, the contracts of the checks, and the broker's client, protocol and deployment. They import
nothing else of the broker.
"""
