"""Kafka's wire protocol as tables.

Foundations, in reading order:

- ``schema``: wire types and the declaration of messages
- ``compiler``: compiles a table into functions, with ``encoder``, ``decoder`` and ``source``
- ``errors``: error codes
- ``header``: frames and headers

Messages, a module per family:

- ``produce``, ``fetch``, ``offsets``, ``metadata``, ``groups``, ``group_offsets``, ``topics``, ``control``: Kafka's
- ``internal`` (among brokers) and ``draft_groups``: on private keys
- ``api``: the key and the versions of each message

The package imports nothing of the broker. Everything that speaks to a broker imports it, including workloads and tests.
"""
