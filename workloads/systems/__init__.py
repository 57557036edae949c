"""Third-party systems under test: their deployment, and connections of clients.

A deployment is a subclass of ``assay.System``, whose methods ``assay.cluster.system`` documents.

- ``etcd`` with ``etcd_gateway`` (its JSON API), ``etcd_registers`` and ``etcd_lock_client``
- ``redis`` with ``redis_elements``, and ``redis_cluster``; the protocol is in ``resp``
- ``postgresql`` with ``postgresql_client``, ``patroni`` with ``postgresql_primary``, ``mariadb``, ``galera``; ``sql``
  is the base of their clients
- ``nats``, ``rabbitmq``
- ``kafka_log``: the log through librdkafka, for any broker that speaks Kafka's protocol

Imports ``cluster``, the harness and ``workloads.generic``; the tests in the folder above import it.
"""
