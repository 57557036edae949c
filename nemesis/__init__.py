"""Faults: which, when, on whom, and the proof that they happened.

Reading order: :mod:`nemesis.target` (whom), :mod:`nemesis.schedule` (the data), :mod:`nemesis.fault` (what a fault is),
:mod:`nemesis.cuts`, :mod:`nemesis.partition`, :mod:`nemesis.kill`, :mod:`nemesis.stop` (the faults),
:mod:`nemesis.catalogue` (their names), :mod:`nemesis.draw` (the random nemesis), :mod:`nemesis.conductor` (plays a
schedule), :mod:`nemesis.row` (what it reports), :mod:`nemesis.plan` (a schedule for displays).

Everything here speaks to :mod:`cluster.node` and to the finders of :mod:`cluster.system` alone, and knows no time but
the running loop's: the same code runs against containers and in the simulation.
"""

from nemesis.catalogue import ALL, NONE, Combination, FaultNameError, catalogue, descriptions, lacking, parse, select
from nemesis.conductor import Conductor
from nemesis.draw import draw
from nemesis.fault import Bite, Census, Fault, Injection, Scope, census
from nemesis.plan import FaultPlan, PlannedFault, plan
from nemesis.row import FaultPhase, FaultRow, Stage
from nemesis.schedule import Record, Resolved, Schedule, ScheduleError, Step, decode, encode
from nemesis.target import Kind, Target, TargetError

__all__ = [
    "ALL",
    "NONE",
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
]
