"""The client library: asynchronous, and honest about what is known after an error.

Modules: ``errors`` (what each error means), ``connection`` and ``pool`` (sockets), ``metadata`` (who leads what),
``producer`` with ``produce_queue``, ``delivery``, ``partitioner`` and ``serializer``, ``async_producer`` with
``callbacks``, ``consumer`` with ``multi_fetch`` and ``fetched`` (stateless reads), ``group_consumer`` with
``membership``, ``assignors`` and ``fetching``, ``admin`` (create, change, delete, describe), ``defective``.
"""
