"""Faults: which, when, on whom, and the proof that they happened.

Reading order: :mod:`nemesis.target` (whom), :mod:`nemesis.trigger` and :mod:`nemesis.schedule` (the data),
:mod:`nemesis.fault` (what a fault is), the faults: of links on :mod:`nemesis.cuts` and :mod:`nemesis.cutting`
(:mod:`nemesis.partition`, :mod:`nemesis.one_way`, :mod:`nemesis.fast_fail`), of processes (:mod:`nemesis.kill`,
:mod:`nemesis.stop`, :mod:`nemesis.restart`, :mod:`nemesis.hold`, :mod:`nemesis.zookeeper`), of consumers
(:mod:`nemesis.consumer`), of sessions (:mod:`nemesis.expire`), of files (:mod:`nemesis.damage`), of machines
(:mod:`nemesis.freeze`); :mod:`nemesis.catalogue` (their names), :mod:`nemesis.draw` (the random nemesis),
:mod:`nemesis.conductor` (plays a schedule), :mod:`nemesis.row` (what it reports), :mod:`nemesis.plan` (a schedule for
displays).

Everything here speaks to :mod:`cluster.node` and to the finders of :mod:`cluster.system` alone, and knows no time but
the running loop's: the same code runs against containers and in the simulation.
"""

from nemesis.catalogue import (
    ALL,
    NONE,
    Combination,
    FaultNameError,
    catalogue,
    descriptions,
    lacking,
    parse,
    select,
    unsuited,
)
from nemesis.conductor import Conductor
from nemesis.draw import draw
from nemesis.fault import Bite, Census, Fault, Injection, Scope, census
from nemesis.plan import FaultPlan, PlannedFault, plan
from nemesis.row import FaultPhase, FaultRow, Stage
from nemesis.schedule import Record, Resolved, Schedule, ScheduleError, Step, decode, encode
from nemesis.target import Kind, Target, TargetError
from nemesis.trigger import AfterOperations, OnEvent, Trigger, TriggerError

__all__ = [
    "ALL",
    "NONE",
    "AfterOperations",
    "Bite",
    "Census",
    "Combination",
    "Conductor",
    "Fault",
    "FaultNameError",
    "FaultPhase",
    "FaultPlan",
    "FaultRow",
    "Injection",
    "Kind",
    "OnEvent",
    "PlannedFault",
    "Record",
    "Resolved",
    "Schedule",
    "ScheduleError",
    "Scope",
    "Stage",
    "Step",
    "Target",
    "TargetError",
    "Trigger",
    "TriggerError",
    "catalogue",
    "census",
    "decode",
    "descriptions",
    "draw",
    "encode",
    "lacking",
    "parse",
    "plan",
    "select",
    "unsuited",
]
