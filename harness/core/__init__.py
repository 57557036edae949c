"""The core of the harness: what to do (generators), doing it (the interpreter), and what happened (the history).

It knows no cluster, no fault and no system. From the outside in:

- **operation**: ``Operation(f, key, argument, phase)``; a client answers ``Completion(outcome, result, error)``; the
  history knows it as ``Completed``; ``Effect`` is one typed row for the checkers.
- **client**: the ``Client`` protocol (``open``, ``invoke``, ``close`` are coroutines, ``effects`` is pure) and
  ``Endpoint``. With ``blocking = True`` on the class the methods are plain and run in threads, never in the simulation.
- **generator**: pure values; ``mix(send(), poll()) | drain()``. Leaves: an ``Operation``, a function of the context,
  ``unfold(step, state)``. Combinators: ``mix sequence phases limit once repeat transform in_phase``, pace:
  ``time_limit stagger rate``, workers: ``each_process reserve by_key keyed``, events: ``until on_event``.
  ``split_phases(main | drain)`` gives a trial the parts that it runs before and after the last heal; ``simulate``
  shows what a generator would do.
- **interpreter**: ``async with Interpreter(endpoints=, client=, recorder=, concurrency=, runtime=, operation_timeout=,
  seed=, stamps=, on_completion=) as it: await it.run(generator, stop=event)``, as often as wanted, by
  the same processes; or ``await run(generator, endpoints=, ...)`` for one. Both return a ``RunReport``: counts,
  exceptions with tracebacks, connections that failed; ``report.unknown`` says why no verdict can be pass.
- **stamps**: ``Stamps().now()``, strictly increasing nanoseconds since the run began. One instance per run, shared by
  the interpreter (``interpreter.stamps``), the nemesis and the collector of events.
- **history**: ``HistoryWriter(folder, loop=)`` with ``completed fault event replica flush digest close``;
  ``HistoryReader(folder)`` with ``paths rows table batches dataset completed digest closed``; the schemas
  ``OPS EFFECTS FAULTS EVENTS REPLICAS`` in ``SCHEMAS``; ``HistoryError``.

``assay.harness.core.history`` needs Arrow and is therefore imported by its own name: a worker process on a node runs
clients without it.
"""

from __future__ import annotations

from assay.harness.core.blocking import BlockingClient, BlockingClientError
from assay.harness.core.client import Client, Endpoint
from assay.harness.core.generator import (
    EXHAUSTED,
    NOTHING,
    PENDING,
    Answer,
    Context,
    Event,
    Exhausted,
    Generator,
    Invoke,
    Pending,
    Source,
    as_generator,
    by_key,
    each_process,
    in_phase,
    keyed,
    limit,
    mix,
    on_event,
    once,
    phases,
    rate,
    repeat,
    reserve,
    sequence,
    simulate,
    split_phases,
    stagger,
    time_limit,
    transform,
    unfold,
    until,
)
from assay.harness.core.interpreter import GeneratorError, Interpreter, Recorder, run
from assay.harness.core.operation import Completed, Completion, Effect, Operation, Outcome, Phase
from assay.harness.core.report import RunReport, UnexpectedException
from assay.harness.core.stamps import NANOSECONDS, Stamps

__all__ = [
    "EXHAUSTED",
    "NANOSECONDS",
    "NOTHING",
    "PENDING",
    "Answer",
    "BlockingClient",
    "BlockingClientError",
    "Client",
    "Completed",
    "Completion",
    "Context",
    "Effect",
    "Endpoint",
    "Event",
    "Exhausted",
    "Generator",
    "GeneratorError",
    "Interpreter",
    "Invoke",
    "Operation",
    "Outcome",
    "Pending",
    "Phase",
    "Recorder",
    "RunReport",
    "Source",
    "Stamps",
    "UnexpectedException",
    "as_generator",
    "by_key",
    "each_process",
    "in_phase",
    "keyed",
    "limit",
    "mix",
    "on_event",
    "once",
    "phases",
    "rate",
    "repeat",
    "reserve",
    "run",
    "sequence",
    "simulate",
    "split_phases",
    "stagger",
    "time_limit",
    "transform",
    "unfold",
    "until",
]
