"""Kafka's wire protocol as tables.

Modules: ``schema`` (wire types), ``compiler`` (a table becomes fast code), ``errors`` (codes), ``header`` (frames), one
module per family of messages (``produce``, ``fetch``, ``offsets``, ``metadata``, ``topics``, ``versions``; ``internal``
among brokers), and ``api`` (which message has which key and which versions).
"""
