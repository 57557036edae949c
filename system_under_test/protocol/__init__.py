"""Kafka's wire protocol as tables.

To read in this order: ``schema`` (wire types), ``compiler`` (a table becomes fast code) with ``encoder``, ``decoder``
and ``source``, ``errors`` (codes), ``header`` (frames), then one module per family of messages: ``produce``, ``fetch``,
``offsets``, ``metadata``, ``groups``, ``group_offsets``, ``topics``, ``control``; on private keys ``internal`` (among
brokers) and ``draft_groups``. ``api`` says which message has which key and which versions.

Imports nothing of the broker. All that speaks to a broker imports it, workloads and tests too.
"""
