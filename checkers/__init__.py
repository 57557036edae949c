"""Proves from a history that promises were kept, or names the operations that say otherwise.

``judge`` (history and contract to verdict), ``contract`` (what is forbidden), ``verdict`` (findings, judgement),
``check`` and ``engine`` (SQL views over Parquet), ``source`` (a history's files as views), ``coverage`` (did enough
happen), then one module per family of properties: ``log`` and its parts ``log_views``, ``log_integrity``, ``log_loss``,
``log_order``, ``log_polls``; ``register`` and its parts ``register_views``, ``register_chains`` (the two fixpoints),
``register_values``, ``register_order``; ``ownership`` (leaders, controllers and their epochs); ``counters``,
``max_registers``, ``sets`` and ``queues``, and ``objects``, which says what of these a key is; ``txn`` (transactions)
and its parts ``txn_views``, ``txn_edges``, ``txn_graph``, ``txn_cycles``, ``txn_words``, ``txn_values``.
"""
