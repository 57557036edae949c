"""Generators: pure values that say which operation comes next, on which worker. In reading order:

- ``context``: the state of the run that a generator is called with, its possible answers, and the state of the workers.
- ``base``: the protocol and the leaves (an ``Operation``, a function of the context, ``unfold``), sequences, phases.
- ``compose``: combinators for any worker: choice, repetition, pace, and reactions to events.
- ``workers``: which workers may take an operation: ``each_process``, ``reserve``, ``by_key``, ``keyed``.
- ``dry_run``: ``simulate``, a run without clients.
- ``describe``: short names for generators.

The package imports ``operation`` and ``timestamps`` of ``harness.core``. Workloads and ``harness.run`` import it.
"""

from assay.harness.core.generator.base import (
    NOTHING,
    Generator,
    Source,
    as_generator,
    phases,
    sequence,
    split_phases,
    unfold,
)
from assay.harness.core.generator.compose import (
    in_phase,
    limit,
    mix,
    on_event,
    once,
    rate,
    repeat,
    stagger,
    time_limit,
    transform,
    until,
    until_ok,
)
from assay.harness.core.generator.context import (
    EXHAUSTED,
    PENDING,
    Answer,
    Context,
    Exhausted,
    Invoke,
    OperationEvent,
    Pending,
    step_random,
)
from assay.harness.core.generator.describe import describe_generator
from assay.harness.core.generator.dry_run import simulate
from assay.harness.core.generator.workers import by_key, each_process, keyed, reserve

__all__ = [
    "EXHAUSTED", "NOTHING", "PENDING", "Answer", "Context", "Exhausted", "Generator", "Invoke", "OperationEvent",
    "Pending", "Source", "as_generator", "by_key", "describe_generator", "each_process", "in_phase", "keyed", "limit",
    "mix", "on_event", "once", "phases", "rate", "repeat", "reserve", "sequence", "simulate", "split_phases",
    "stagger", "step_random", "time_limit", "transform", "unfold", "until", "until_ok",
]  # fmt: skip
