"""The same group at work with the draft of the protocol: its coordinator assigns, and keeps generations in ZooKeeper.

pytest workloads/test_draft_group.py --nemesis=kill
pytest workloads/test_draft_group.py --cluster=sim --nemesis=mix --workload-mix=random --repeat=60 --rate=100 -q

What members do, and what they are judged by, is that of ``test_group``. Where a coordinator may die in the middle of a
rebalance are other points (docs/broker/groups.md); ``--replay=schedules/draft-failover-4.json`` kills it at one.
"""

import msgspec

from assay.checkers.groups.generations import GENERATION_REUSE
from assay.harness.core.generator import Generator
from assay.harness.run.settings import Settings
from assay.workloads.broker.draft_client import DraftClient
from assay.workloads.broker.group_mixes import member_experiment
from assay.workloads.test_group import CONTRACT as LATER_DESIGN
from assay.workloads.test_group import MIXES, SYSTEM, at_work

# Generations of the draft are in ZooKeeper, not in the offsets topic: no event says that one was stored there.
CONTRACT = msgspec.structs.replace(
    LATER_DESIGN, needed=tuple(name for name in LATER_DESIGN.needed or () if name != GENERATION_REUSE.anomaly)
)


@member_experiment(system=SYSTEM, client=DraftClient, contract=CONTRACT, mixes=MIXES)
def test_draft_group(settings: Settings) -> Generator:
    """Members that are assigned to share what was acknowledged, and no one of an old generation commits."""
    return at_work(settings)
