"""Live migration: a group moves its offsets from ZooKeeper to the offsets topic and back, in rolling steps.

pytest workloads/test_migration.py --nemesis=kill
pytest workloads/test_migration.py --cluster=sim --nemesis=partition --repeat=60 --rate=100 -q

A new owner of a partition must resume at the last committed offset, in both storages. No owner may resume below an
acknowledged offset.
"""

from dataclasses import replace

from assay.harness.core.generator import Generator, mix
from assay.harness.run.settings import Settings
from assay.workloads.broker.connector_client import TO_TOPIC, ConnectorClient
from assay.workloads.broker.group_drain import drain, leave_and_rejoin
from assay.workloads.broker.group_mixes import adapt_to_groups, list_subscribed, member_experiment
from assay.workloads.broker.log_operations import End, Send
from assay.workloads.broker.migration import GROUP, migration
from assay.workloads.broker.mixes import OLD_GROUP_MIXES
from assay.workloads.test_zookeeper_group import CONTRACT
from assay.workloads.test_zookeeper_group import SYSTEM as OLD_DESIGN

SYSTEM = replace(OLD_DESIGN, groups=(GROUP,))
"""The system of ``test_zookeeper_group``. The group is named, so that faults can target its coordinator. It has one
while its offsets are in the offsets topic."""


@member_experiment(system=SYSTEM, client=ConnectorClient, contract=CONTRACT, mixes=adapt_to_groups(OLD_GROUP_MIXES))
def test_migration(settings: Settings) -> Generator:
    """No offset is lost or goes back during the migration to the other storage and back."""
    keys, shared = SYSTEM.keys(), list_subscribed(SYSTEM, settings)
    traffic = mix(Send.draw(keys), migration(shared), End.draw(keys), weights=(6, 18, 1))
    # Members rejoin in a mode that reads both storages.
    rejoining = leave_and_rejoin(GROUP, mode=TO_TOPIC, step=1)
    return traffic | rejoining | drain(shared, seconds=CONTRACT.recovery_deadline)
