"""The client library: asynchronous, and honest about what is known after an error.

Modules: ``errors`` (what each error means), ``connection`` and ``pool`` (sockets), ``metadata`` (who leads what),
``producer``, ``partitioner``, ``consumer`` (stateless reads), ``admin`` (create, delete, describe).
"""
