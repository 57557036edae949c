"""The core of the harness: generators (what to do), the interpreter (doing it) and the history (what happened).

It knows no cluster, no fault and no system. It imports no other part of the project; every other part of the harness
may import it. In reading order:

- ``operation``: ``Operation(f, key, argument, phase)``, a client's answer ``Completion(outcome, result, error)``, the
  record ``Completed``, and ``Effect``, one typed row for the checkers.
- ``client``: the ``Client`` protocol (coroutines ``open``, ``invoke``, ``close``; pure ``effects``) and ``Endpoint``.
- ``blocking``: clients with ``blocking = True``, whose plain methods run in threads. The simulation rejects them.
- ``observed_node``: finds the node through which a client reaches the system, from the addresses that it reads.
- ``generator``: pure values such as ``mix(send(), poll()) | drain()``. ``split_phases(main | drain)`` returns the parts
  that run before and after the last heal; ``simulate`` shows what a generator would do.
- ``interpreter``: runs generators with ``async with Interpreter(...) as it: await it.run(generator, stop=event)``. It
  can run several in turn with the same processes. The result is an ``InterpreterStatus``; its ``unknown`` has the
  reasons for which this run's verdict cannot be pass.
- ``timestamps``: ``Stamps().now()``, strictly increasing nanoseconds since the run began. The interpreter, the nemesis
  and the event collector share one instance per run.
- ``history``: ``HistoryWriter``, ``HistoryReader``, the schemas of the data sets and ``HistoryError``.
- ``worker``: one task per worker, its back-off, and the tasks of clients that ignore cancellation.
- ``effect_recording``: records what clients return, or reports why it cannot.
- ``resources``: the memory and the disk space of a run over time.
- ``interpreter_status``: counts, exceptions and connection failures of a run.
- ``transactions``: effects of transactions made of micro-operations.
- ``plain_data``: the values that a history can hold, with one text for equal values.
- ``printable``: text that is safe on a terminal.
- ``failure_rate``: a failure probability with its confidence interval.
- ``lazy_import``: modules that are loaded on first use.
- ``files``: atomic writes, and reads that reject special files.

Only the modules of ``history`` that read and write files need Arrow. Worker processes on nodes and the runs of a search
do without it.
"""
