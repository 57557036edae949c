"""Faults: which, when, on whom, and the proof that they happened.

Reading order: :mod:`assay.nemesis.target` (whom), :mod:`assay.nemesis.trigger` and :mod:`assay.nemesis.schedule` (the
data), :mod:`assay.nemesis.fault` (what a fault is), the faults: of links on :mod:`assay.nemesis.cuts` and
:mod:`assay.nemesis.cutting` (:mod:`assay.nemesis.partition`, :mod:`assay.nemesis.one_way`,
:mod:`assay.nemesis.fast_fail`), of processes (:mod:`assay.nemesis.kill`, :mod:`assay.nemesis.stop`,
:mod:`assay.nemesis.restart`, :mod:`assay.nemesis.hold`, :mod:`assay.nemesis.zookeeper`), of consumers
(:mod:`assay.nemesis.consumer`), of sessions (:mod:`assay.nemesis.expire`), of files (:mod:`assay.nemesis.damage`), of
machines (:mod:`assay.nemesis.freeze`); :mod:`assay.nemesis.catalogue` (their names), :mod:`assay.nemesis.draw` (the
random nemesis), :mod:`assay.nemesis.conductor` (plays a schedule), :mod:`assay.nemesis.row` (what it reports),
:mod:`assay.nemesis.plan` (a schedule for displays).

Everything here speaks to :mod:`assay.cluster.node` and to the finders of :mod:`assay.cluster.system` alone, and knows
no time but the running loop's: the same code runs against containers and in the simulation.
"""

from assay.nemesis.catalogue import (
    ALL,
    NONE,
    Catalogue,
    Combination,
    FaultNameError,
    lacking,
    standard_faults,
    unsuited,
)
from assay.nemesis.conductor import Conductor
from assay.nemesis.draw import draw
from assay.nemesis.fault import Census, Fault, Injection, Proof, Scope, census
from assay.nemesis.plan import FaultPlan, PlannedFault, plan
from assay.nemesis.row import FaultPhase, FaultRow, Stage
from assay.nemesis.schedule import Record, Resolved, Schedule, ScheduleError, Step, decode, encode
from assay.nemesis.target import Kind, Target, TargetError
from assay.nemesis.trigger import AfterOperations, OnEvent, Trigger, TriggerError

__all__ = [
    "ALL",
    "NONE",
    "AfterOperations",
    "Catalogue",
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
    "Proof",
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
    "census",
    "decode",
    "draw",
    "encode",
    "lacking",
    "plan",
    "standard_faults",
    "unsuited",
]
