"""Answers a tester's request: which replicas this broker has, and the leader epoch of each."""

from assay.system_under_test.network.handler import Context
from assay.system_under_test.protocol.internal import ReplicaRole, RolesRequest, RolesResponse
from assay.system_under_test.replication.manager import ReplicaManager

DAMAGED = -1
"""Reported as the high watermark of a damaged log, from which nothing may be deleted until it is rebuilt."""


async def list_roles(manager: ReplicaManager, _: RolesRequest, context: Context) -> RolesResponse:
    return RolesResponse(
        partitions=[
            ReplicaRole(
                topic=partition.topic,
                partition=partition.index,
                leader_epoch=partition.leader_epoch,
                high_watermark=DAMAGED if partition.log.damage is not None else partition.high_watermark,
                log_end=partition.log.end_offset,
                settings=partition.config.fingerprint,
                flushed=partition.log.flushed_offset,
                flush_ms=partition.config.flush_ms,
            )
            for partition in manager.replicas.all()
        ]
    )
