"""Generator of a live migration: a group moves its offsets in rolling steps, from ZooKeeper to the topic and back.

1. In each step the members switch to the step's mode one after another, each by a poll. The other members poll and
   commit in their present mode.
2. The next step begins when all members are in the step's mode, and every partition is held by a member in this mode. A
   real operator must ensure this, too. After dual writes, for example, every partition must have been owned by a member
   that writes both stores.
3. Sometimes the operator rolls back half-way: the members return to the previous mode.

The number of workers with a member is the initial number of partitions. So each member holds a partition, a step takes
only seconds, and partitions pass between members of both modes. The other workers send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from assay.harness.core.generator import (
    PENDING,
    Answer,
    Context,
    Generator,
    Invoke,
    OperationEvent,
)
from assay.harness.core.generator.context import iterate_bits
from assay.harness.core.operation import Operation, Outcome
from assay.workloads.broker.connector_client import MODES
from assay.workloads.broker.group_operations import CommitPositions, LeaveGroup, PollGroup

GROUP: Final = "migrants"
STEPS: Final = tuple(MODES)
LEAVE_ONE_IN: Final = 20
COMMIT_ONE_IN: Final = 3
"""On average, one in this many operations of a member leaves or commits; all other operations are polls."""
ROLLBACK_ONE_IN: Final = 60
"""On average, one in this many operations begins a rollback, while members switch modes."""
MEMBER_COUNT: Final = 4
"""Number of workers that have a member."""


class MemberState(Struct, frozen=True):
    """Known state of a worker's member: its process, and the step of its mode.

    ``step`` is None for a new member, and while a poll that changes the mode is in flight.
    """

    process: int
    step: int | None = None


class Migration(Generator, frozen=True):
    """Generator of a live migration; see the module.

    - ``step``: the present step, counted from the beginning of the run; its mode is ``STEPS[step % len(STEPS)]``
    - ``before``: the previous step
    - ``members``: maps a worker to the state of its member
    - ``holders``: for each partition, maps the open holds (process and assignment) to the steps of their modes
    """

    keys: tuple[str, ...]
    step: int = 0
    before: int = 0
    members: Mapping[int, MemberState] = {}
    holders: Mapping[str, Mapping[tuple[int, int], int]] = {}

    def op(self, context: Context) -> tuple[Answer, Generator]:
        context = context.restrict(sum(1 << worker for worker in list(iterate_bits(context.workers))[:MEMBER_COUNT]))
        if not context.free:
            return PENDING, self
        step, before = self.step, self.before
        if self._is_step_done(context):
            step, before = step + 1, step
        elif not context.random_below(ROLLBACK_ONE_IN, salt=3):
            step, before = before, step
        worker = context.pick()
        known = self.members.get(worker)
        if known is None or known.process != context.processes[worker]:
            known = MemberState(context.processes[worker])
        target = step if known.step is None or self._is_next_to_switch(context, worker, step) else known.step
        changed = known if target == known.step else MemberState(known.process)
        following = replace(self, step=step, before=before, members={**self.members, worker: changed})
        argument = {"group": GROUP, "mode": STEPS[target % len(STEPS)], "step": target}
        if target == known.step and not context.random_below(COMMIT_ONE_IN, salt=1):
            return Invoke(Operation(CommitPositions.f, argument=argument), worker), following
        if target == known.step and not context.random_below(LEAVE_ONE_IN, salt=2):
            return Invoke(Operation(LeaveGroup.f, argument=argument), worker), following
        return Invoke(Operation(PollGroup.f, argument=argument), worker), following

    def update(self, context: Context, event: OperationEvent) -> Generator:
        if event.completed is None:
            return self
        argument, completion = event.operation.argument, event.completed.completion
        if completion.outcome is Outcome.INFO:  # the process is gone; the next one reports its holds again
            return replace(
                self,
                members={worker: known for worker, known in self.members.items() if worker != event.worker},
                holders={
                    key: {hold: step for hold, step in held.items() if hold[0] != event.process}
                    for key, held in self.holders.items()
                },
            )
        verbs = (PollGroup.f, CommitPositions.f, LeaveGroup.f)
        if event.operation.f not in verbs or (argument or {}).get("group") != GROUP:
            return self  # an operation of a mix
        members, holders = dict(self.members), {key: dict(held) for key, held in self.holders.items()}
        if completion.outcome is Outcome.OK and event.operation.f == PollGroup.f:
            members[event.worker] = MemberState(event.process, argument["step"])
        for note in (completion.result or {}).get("ownership", ()):
            held = holders.setdefault(note["key"], {})
            if note["kind"] == "acquire":
                held[event.process, note["assignment"]] = argument["step"]
            else:
                held.pop((event.process, note["assignment"]), None)
        for key, assignment in (completion.result or {}).get("over", ()):  # the holds that ended between operations
            holders.setdefault(key, {}).pop((event.process, assignment), None)
        return replace(self, members=members, holders=holders)

    def _is_next_to_switch(self, context: Context, worker: int, step: int) -> bool:
        """Returns whether the worker's member may switch to the step's mode now.

        Members switch one at a time, in the order of the workers. A new member begins in the step's mode.
        """
        if any(known.step is None and context.busy >> one & 1 for one, known in self.members.items()):
            return False
        behind = [one for one, known in sorted(self.members.items()) if known.step is not None and known.step != step]
        return bool(behind) and behind[0] == worker

    def _is_step_done(self, context: Context) -> bool:
        """Returns whether all members are in the step's mode, and every partition is held in this mode."""
        members = [self.members.get(worker) for worker in iterate_bits(context.workers)]
        if not all(known is not None and known.step == self.step for known in members):
            return False
        # A partition that was added to the topic counts once a member has held it and may have committed an offset.
        return all(set(self.holders.get(key, {}).values()) == {self.step} for key in {*self.keys, *self.holders})


def migration(keys: Sequence[str]) -> Generator:
    """Returns the generator that migrates the group ``migrants`` in rolling steps, there and back, for ever."""
    return Migration(tuple(keys))
