"""Committed offsets: one register per group and partition, which no member of an old generation may write.

pytest workloads/test_offsets.py --nemesis=kill
pytest workloads/test_offsets.py --cluster=sim --nemesis=partition,stop

Members of one group join and leave throughout the run, so that generations change. Sometimes a member deliberately
commits in the previous generation. Any client may commit to the second group (``MEMBERLESS``), which has no members.
The first partition rarely gets a commit, but is fetched as often as the others.
"""

from assay.checkers.groups.family import GROUP_ANOMALIES
from assay.checkers.register.family import REGISTER
from assay.harness.core.generator import Context, Generator, unfold
from assay.harness.core.operation import Operation, Phase
from assay.harness.run.settings import Settings
from assay.system_under_test.deployment import Broker
from assay.workloads.broker.broker_contract import GROUPS_STALL, build_contract
from assay.workloads.broker.group_mixes import OFFSETS_MIXES, member_experiment
from assay.workloads.broker.offsets_client import (
    MEMBERLESS,
    MEMBERS,
    Commit,
    CommitInOldGeneration,
    Fetch,
    Leave,
    OffsetsClient,
)

SYSTEM = Broker(partitions=4, replication=3, min_insync=2, groups=(MEMBERS,)).with_setting("flush.messages", "1")
PARTITIONS = list(SYSTEM.keys())
KEYS = [f"{MEMBERS}/{partition}" for partition in PARTITIONS] + [f"{MEMBERLESS}/{PARTITIONS[0]}"]
BUSY = KEYS[1:]
"""Keys that get most commits. The first key is left out, so that its offset grows old, as in an idle group."""
CONTRACT = build_contract(*REGISTER.anomalies, *GROUP_ANOMALIES, may_stall=GROUPS_STALL)
WEIGHTS = (Commit.f,) * 10 + (Fetch.f,) * 8 + (CommitInOldGeneration.f,) * 2 + (Leave.f,)


def step(number: int, context: Context) -> tuple[Operation, int]:
    f = context.choose(WEIGHTS, salt=1)
    if f == Leave.f and context.random_below(4, salt=4):
        f = Commit.f
    keys = KEYS if f == Fetch.f or not context.random_below(50, salt=5) else BUSY
    key = context.choose(keys[:-1] if f == CommitInOldGeneration.f else keys, salt=2)
    argument = (
        {"number": number, "offset": context.random_below(1000, salt=3)}
        if f in (Commit.f, CommitInOldGeneration.f)
        else None
    )
    return Operation(f, key, argument), number + 1


@member_experiment(system=SYSTEM, client=OffsetsClient, contract=CONTRACT, mixes=OFFSETS_MIXES)
def test_offsets(settings: Settings) -> Generator:
    """A fetch returns the latest commit, and no commit of an old generation is accepted."""
    return unfold(step, 1) | [Operation(Fetch.f, key, phase=Phase.DRAIN) for key in KEYS]
