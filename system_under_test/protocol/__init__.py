"""Kafka's wire protocol as tables.

Foundations, in reading order:

- ``schema``: wire types and the declaration of messages
- ``compiler``: compiles a table into functions, with ``encoder``, ``decoder`` and ``source``
- ``errors``: error codes
- ``header``: frames and headers

Messages, a module per family:

- ``produce``, ``fetch``, ``offsets``, ``metadata``, ``groups``, ``group_offsets``, ``topics``, ``control``: messages of
  Kafka
- ``internal`` (among brokers), ``draft_groups``: messages with private API keys
- ``api``: the API key and the versions of each request

The package imports nothing of the broker. All code that talks to a broker imports it, including workloads and tests.
"""
