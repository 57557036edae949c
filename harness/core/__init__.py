"""The core of the harness: what to do (generators), doing it (the interpreter), and what happened (the history).

It knows no cluster, no fault and no system; it imports no other part of the project, and every other part of the
harness may import it. In the order to read it:

- ``operation``: ``Operation(f, key, argument, phase)``; a client answers ``Completion(outcome, result, error)``; the
  history knows it as ``Completed``; ``Effect`` is one typed row for the checkers.
- ``client``: the ``Client`` protocol (``open``, ``invoke``, ``close`` are coroutines, ``effects`` is pure) and
  ``Endpoint``. With ``blocking = True`` on the class the methods are plain and run in threads, never in the simulation.
  ``observed_node``: through which node a client reaches the system, by what it asks its endpoint for.
- ``generator``: pure values; ``mix(send(), poll()) | drain()``. Leaves: an ``Operation``, a function of the context,
  ``unfold(step, state)``. Combinators: ``mix sequence phases limit once repeat transform in_phase``, pace:
  ``time_limit stagger rate``, workers: ``each_process reserve by_key keyed``, events: ``until on_event``.
  ``split_phases(main | drain)`` gives a trial the parts that it runs before and after the last heal; ``simulate``
  shows what a generator would do.
- ``interpreter``: ``async with Interpreter(endpoints=, client=, recorder=, concurrency=, runtime=, operation_timeout=,
  seed=, stamps=, on_completion=) as it: await it.run(generator, stop=event)``, as often as wanted, by
  the same processes. It returns a ``RunReport``: counts, exceptions with tracebacks, connections that failed;
  ``report.unknown`` says why no verdict can be pass.
- ``timestamps``: ``Stamps().now()``, strictly increasing nanoseconds since the run began. One instance per run, shared
by
  the interpreter (``interpreter.stamps``), the nemesis and the collector of events.
- ``history``: ``HistoryWriter(folder, loop=)`` with ``completed fault event replica flush digest close``;
  ``HistoryReader(folder)`` with ``format paths rows table batches dataset completed digest closed``; the schemas
  ``OPS EFFECTS FAULTS EVENTS REPLICAS`` in ``SCHEMAS``; ``HistoryError``.
- ``worker`` (one task per worker), ``backoff`` (how long one waits that fails at once), ``blocking`` (clients in
  threads), ``abandoned_tasks`` (tasks of clients that do not let themselves be cancelled), ``effect_recording`` (what a
  client gives goes into the history, or is reported), ``report`` (what a run reports in addition), ``transactions``
  (effects of micro-operations), ``printable`` (text that is safe on a terminal), ``failure_rate`` (how often something
  fails),
  ``lazy_import`` (modules that are loaded when they are first used), ``files`` (written whole or not at all).

Only what reads and writes files of a ``history`` needs Arrow: a worker process on a node runs clients without it, and
a search plays runs without it.
"""
