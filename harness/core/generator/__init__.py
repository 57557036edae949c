"""Generators: pure values that say which operation comes next, on which worker.

Read them in this order: ``context`` (what a generator is called with, and its answers), ``base`` (the protocol, and
the leaves), ``compose`` (generators made of generators), ``pace`` (time), ``workers`` (who may take an operation),
``events`` (what reacts to operations), ``roster`` (which workers are free), ``dry_run`` (a run without clients),
``describe`` (names).

Imports ``operation`` and ``stamps`` of ``harness.core``; workloads import it, and ``harness.run``.
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
from assay.harness.core.generator.compose import in_phase, limit, mix, once, repeat, transform
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
from assay.harness.core.generator.describe import described
from assay.harness.core.generator.dry_run import simulate
from assay.harness.core.generator.events import on_event, until
from assay.harness.core.generator.pace import rate, stagger, time_limit
from assay.harness.core.generator.workers import by_key, each_process, keyed, reserve

__all__ = [
    "EXHAUSTED", "NOTHING", "PENDING", "Answer", "Context", "Exhausted", "Generator", "Invoke", "OperationEvent",
    "Pending", "Source", "as_generator", "by_key", "described", "each_process", "in_phase", "keyed", "limit", "mix",
    "on_event", "once", "phases", "rate", "repeat", "reserve", "sequence", "simulate", "split_phases", "stagger",
    "step_random", "time_limit", "transform", "unfold", "until",
]  # fmt: skip
