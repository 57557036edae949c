"""Schedules of faults as data: which fault, when, on which target, for how long; as planned and as resolved.

- :class:`FaultSchedule` is the plan (``kill leader of orders-0 at 12 s``).
- :class:`ResolvedStep` is the outcome of a step (``n2 at 12.041 s, healed at 17.102 s``).
- :class:`ScheduleRecord` has the plan and all outcomes, as a run stores them.

A run can be replayed as planned or as resolved. ``as_planned`` finds out again which node leads; ``as_resolved`` hits
the same nodes at the same times. A step contains everything needed to repeat it, including its own seed. So the removal
of other steps (shrinking) does not change it.

In JSON, ``type`` distinguishes a schedule from a record: ``{"type": "schedule", "seed": 7, "steps": [...]}``,
``{"type": "run", ...}``. Unknown fields are errors, so that a misspelled ``duration`` does not become a default.
"""

import enum
import itertools
import math
from typing import Annotated, Any

import msgspec

from assay.nemesis.schedule.target import Target, TargetKind, named_target
from assay.nemesis.schedule.trigger import Trigger


class PartitionShape(enum.StrEnum):
    ONE = "one"
    HALVES = "halves"
    MAJORITY_MINORITY = "majority-minority"
    RANDOM_HALVES = "random-halves"
    ISOLATE_LEADER = "isolate-leader"
    ISOLATE_CONTROLLER = "isolate-controller"
    MAJORITIES_RING = "majorities-ring"
    BRIDGE = "bridge"
    FROM_ZOOKEEPER = "from-zookeeper"
    LEADER_AND_FOLLOWER = "leader-and-follower"
    FOLLOWER_FROM_LEADER = "follower-from-leader"
    LINKS = "links"


ISOLATED = {
    PartitionShape.ONE: TargetKind.ONE,
    PartitionShape.HALVES: TargetKind.HALF,
    PartitionShape.MAJORITY_MINORITY: TargetKind.MINORITY,
    PartitionShape.RANDOM_HALVES: TargetKind.HALF,
    PartitionShape.ISOLATE_LEADER: TargetKind.LEADER,
    PartitionShape.ISOLATE_CONTROLLER: TargetKind.CONTROLLER,
    PartitionShape.MAJORITIES_RING: TargetKind.ALL,
    PartitionShape.BRIDGE: TargetKind.ONE,
    PartitionShape.LEADER_AND_FOLLOWER: TargetKind.LEADER,
    PartitionShape.FOLLOWER_FROM_LEADER: TargetKind.FOLLOWER,
}
"""The target that each shape isolates; for ``bridge``, the bridge itself. ``one`` takes other targets, too."""


FIRST_INJECTION_AT = 2.0
"""Seconds from the start of the main phase to the first injection, so that the workload is already running."""

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Parameter = str | int | float | bool


class ScheduleError(ValueError):
    """A schedule that cannot be read or drawn. The message says where the error is, and what to do."""


class FaultStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A planned fault.

    - ``at``: seconds from the start of the main phase
    - ``duration``: seconds from ``at`` to its heal
    - ``parameters``: the fault's own settings (a partition's shape)
    - ``seed``: decides the choices left open until injection, such as which node is ``one``; None uses the run's
      generator
    - ``keep_majority``: if other faults are active, the step hits one of their nodes rather than disturb a majority
    - ``yields``: the step may be skipped if other active faults prevent it; this is recorded and is not a failure
    - ``exact``: the fault is healed at the end of its duration, even if it has had no effect until then
    - ``trigger``: the step waits for it from ``at`` on; the heal comes ``duration`` seconds after the injection
    """

    at: Seconds
    fault: Annotated[str, msgspec.Meta(min_length=1)]
    target: Target
    duration: Annotated[float, msgspec.Meta(gt=0)]
    parameters: dict[str, Parameter] = msgspec.field(default_factory=dict)
    seed: int | None = None
    keep_majority: bool = False
    yields: bool = False
    exact: bool = False
    trigger: Trigger | None = None

    @property
    def until(self) -> float:
        """Latest time of the heal, in seconds from the start of the main phase."""
        waiting = 0.0 if self.trigger is None else self.trigger.within + self.trigger.delay
        return self.at + waiting + self.duration

    def __str__(self) -> str:
        """Returns text like ``kill leader of orders-0``, ``partition halves``, ``partition from-zookeeper n2``."""
        shape = self.parameters.get("shape")
        fault = self.fault if shape is None or self.fault.endswith(f"-{shape}") else f"{self.fault} {shape}"
        whom = str(self.target)
        if shape in ISOLATED:
            # The shape's name already contains the target: "isolate-leader of orders-0".
            whom = whom.removeprefix(ISOLATED[PartitionShape(str(shape))])
        when = f" {self.trigger}" if self.trigger is not None else ""
        return f"{fault} {whom}{when}".replace("  ", " ").strip()


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Point at which a run diverges from another run with the same beginning.

    From ``at`` on, randomness is drawn from ``seed``, and the faults ``steps`` are added. Times are seconds from the
    start of the main phase. In the simulation ``seed`` decides all randomness. On real nodes it decides only the
    choices of the harness (targets and clients).
    """

    at: Seconds
    seed: int
    steps: tuple[FaultStep, ...] = ()

    def __str__(self) -> str:
        return f"from {self.at:.6g} s on, randomness comes from seed {self.seed}"


class FaultSchedule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="schedule", omit_defaults=True
):
    """Planned steps and branches, by time. ``omitted``: requested faults for which the run had no time."""

    seed: int
    steps: tuple[FaultStep, ...] = ()
    omitted: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()

    def __post_init__(self) -> None:
        times = [[step.at for step in steps] for steps in (self.steps, *(branch.steps for branch in self.branches))]
        times.append([branch.at for branch in self.branches])
        if any(later < earlier for one in times for earlier, later in itertools.pairwise(one)):
            raise ScheduleError("the steps are not in the order of their times (at): sort them")
        if any(step.at < branch.at for branch in self.branches for step in branch.steps):
            raise ScheduleError("a step of a branch has an earlier time (at) than the branch: give it a later time")

    @property
    def all_steps(self) -> tuple[FaultStep, ...]:
        """Steps including those of branches, in the order of their numbers, from 1."""
        return (*self.steps, *(step for branch in self.branches for step in branch.steps))


class ResolvedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcome of a step. Times are seconds from the start of the main phase. ``healed_at`` None: it was never healed.

    ``targets`` is empty if no node could be hit; ``detail`` then has the reason. If the injection failed, ``targets``
    are the nodes on which it was tried, because a part of it may have been done.
    """

    step: FaultStep
    targets: tuple[str, ...]
    at: float
    healed_at: float | None
    detail: dict[str, Any]

    def __post_init__(self) -> None:
        if self.healed_at is not None and self.healed_at < self.at:
            raise ScheduleError(f"a step was injected at {self.at} s and healed before, at {self.healed_at} s")

    def __str__(self) -> str:
        """Returns text like ``kill leader of orders-0: n2 at 14.203 s to 19.310 s``."""
        until = f" to {self.healed_at:.3f} s" if self.healed_at is not None else ", not healed"
        return f"{self.step}: {'+'.join(self.targets) or 'no node'} at {self.at:.3f} s{until}"


class ScheduleRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="run"):
    """A run's schedule as planned and, as far as the run got, as resolved."""

    schedule: FaultSchedule
    resolved: tuple[ResolvedStep, ...] = ()

    def as_planned(self) -> FaultSchedule:
        """Returns the planned schedule. A replay asks again which node leads."""
        return self.schedule

    def as_resolved(self) -> FaultSchedule:
        """Returns a schedule of the same faults on the same nodes at the same times, without steps that hit no node."""
        steps = [
            msgspec.structs.replace(
                done.step,
                at=done.at,
                target=named_target(*done.targets),
                trigger=None,
                keep_majority=False,  # the targets are the nodes that were hit in the end
                exact=done.healed_at is not None,
                duration=done.step.duration if done.healed_at is None else _duration_between(done.at, done.healed_at),
            )
            for done in self.resolved
            if done.targets
        ]
        steps.sort(key=lambda step: step.at)
        branches = tuple(Branch(branch.at, branch.seed) for branch in self.schedule.branches)
        return FaultSchedule(self.schedule.seed, tuple(steps), self.schedule.omitted, branches)


def _duration_between(at: float, healed_at: float) -> float:
    """Returns the duration whose floating-point sum with ``at`` is ``healed_at``, so that a replay keeps the order."""
    duration = healed_at - at
    while at + duration > healed_at:
        duration = math.nextafter(duration, 0.0)
    while at + duration < healed_at:
        duration = math.nextafter(duration, math.inf)
    return duration


def encode_schedule(document: FaultSchedule | ScheduleRecord) -> bytes:
    """Returns readable JSON, the inverse of :func:`decode_schedule`."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decode_schedule(data: bytes, source: str = "schedule") -> FaultSchedule | ScheduleRecord:
    """Reads the output of :func:`encode_schedule`, or a hand-written schedule. ``source`` names the file in errors.

    Raises :class:`ScheduleError` with the place in the document and what was expected there.
    """
    try:
        return msgspec.json.decode(data, type=FaultSchedule | ScheduleRecord)
    except msgspec.ValidationError as error:
        raise ScheduleError(f"{source}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScheduleError(f"{source} is not JSON: {error}") from error
