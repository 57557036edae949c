"""Consumer groups of the draft design: the coordinator assigns partitions and keeps generations in ZooKeeper.

pytest workloads/test_draft_group.py --nemesis=kill
pytest workloads/test_draft_group.py --cluster=sim --nemesis=mix --workload-mix=random --repeat=60 --rate=100 -q

Traffic and checks are those of ``test_group``. A coordinator can die at other points of a rebalance
(docs/broker/groups.md). ``--replay=schedules/draft-failover-4.json`` kills it at one of them.
"""

import msgspec

from assay.checkers.groups.generations import GENERATION_REUSE
from assay.harness.core.generator import Generator
from assay.harness.run.settings import Settings
from assay.workloads.broker.group_client import DraftClient
from assay.workloads.broker.group_mixes import member_experiment
from assay.workloads.test_group import CONTRACT as LATER_DESIGN
from assay.workloads.test_group import MIXES, SYSTEM, build_group_traffic

# The contract of ``test_group`` without the check for reused generations. That check reads the events about generations
# in the offsets topic, and the draft design keeps generations in ZooKeeper.
CONTRACT = msgspec.structs.replace(
    LATER_DESIGN, needed=tuple(name for name in LATER_DESIGN.needed or () if name != GENERATION_REUSE.anomaly)
)


@member_experiment(system=SYSTEM, client=DraftClient, contract=CONTRACT, mixes=MIXES)
def test_draft_group(settings: Settings) -> Generator:
    """Members share the acknowledged records as assigned, and no member of an old generation commits."""
    return build_group_traffic(settings)
