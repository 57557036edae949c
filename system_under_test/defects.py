"""Historic defects of brokers of this kind, each behind a switch, off by default.

A defect is a value of the traits of its layer: ``log.traits``, ``replication.traits``, ``controller.traits``,
``groups.traits`` or ``client.traits``. It is chosen when the broker or the client is built, so the correct build never
tests a flag while it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Defect:
    """A defect that a build of the broker or the client can have."""

    name: str
    summary: str
    """The wrong behaviour, as a sentence without a full stop."""
    fault: str
    """The faults or the load that provoke it, as instructions."""
    anomalies: tuple[str, ...]
    """Anomalies of which its run must report at least one."""
    reference: str
    """A published description, or the precaution that the defect leaves out."""
    run: str
    """The pytest arguments, in addition to ``--defect``, of a run that catches it."""


_ALL = (
    Defect(
        "ack-before-replication",
        "acks=all is acknowledged by the leader alone, and the records are replicated in the background",
        "kill the leader under load",
        ("lost-write",),
        "the acks=-1 contract of KAFKA-391; the default of many home-made logs",
        "workloads/test_log.py --nemesis=kill --nemesis-target=leader --time-limit=60",
    ),
    Defect(
        "isr-of-one",
        "a leader that is cut off drops its followers from the in-sync set in memory alone, and acknowledges alone",
        "cut the leader from its followers with ZooKeeper reachable, then cut it from ZooKeeper or kill it",
        ("lost-write", "vanished"),
        "Kafka before KIP-966; https://aphyr.com/posts/293-call-me-maybe-kafka",
        "workloads/test_log.py --replay=schedules/isr-of-one.json --time-limit=60",
    ),
    Defect(
        "unclean-election",
        "a replica outside the in-sync set is elected when no member of it is left",
        "stop a follower, kill the in-sync set, continue the follower",
        ("lost-write", "inconsistent-offset"),
        "unclean.leader.election.enable, on by default until KIP-106",
        "workloads/test_log.py --replay=schedules/unclean-election.json --time-limit=60",
    ),
    Defect(
        "truncate-to-hw",
        "a follower truncates its log to its own high watermark, which it learns one fetch later than the leader",
        "restart a follower, then kill the leader within a fetch round trip",
        ("lost-write", "inconsistent-offset"),
        "KIP-101, first scenario; KAFKA-1211",
        "workloads/test_log.py --cluster=sim --replay=schedules/truncate-to-hw.json"
        " --nodes=5 --rate=200 --time-limit=60",
    ),
    Defect(
        "divergent-tail",
        "a follower compares only lengths of logs and not epochs, so it keeps a divergent tail",
        "cut the leader from its followers, kill it, and make it leader again",
        ("inconsistent-offset", "vanished"),
        "KIP-101, second scenario; KAFKA-3919",
        "workloads/test_log.py --replay=schedules/divergent-tail.json --time-limit=60",
    ),
    Defect(
        "epoch-not-recorded",
        "a new leader stores its epoch with its first record instead of before it serves",
        "two kills of leaders, one soon after the other, of a partition that is idle between them",
        ("inconsistent-offset", "lost-write", "damaged-log"),
        "KAFKA-7415",
        "workloads/test_log.py --cluster=sim --replay=schedules/truncate-to-hw.json"
        " --nodes=5 --rate=200 --time-limit=60",
    ),
    Defect(
        "zombie-follower",
        "a leader serves followers of any epoch, so a follower that missed changes of leader does not truncate its log",
        "cut a follower from the controller while leadership goes from A to C and back to A",
        ("leader-completeness",),
        "KIP-320",
        "workloads/test_log.py --cluster=sim --replay=schedules/zombie-follower.json"
        " --workload-mix=handovers --rate=200 --time-limit=60",
    ),
    Defect(
        "stale-leader-and-isr",
        "a broker obeys a controller that was replaced, and goes back to a role of an earlier epoch",
        "stop a controller after its write to ZooKeeper and before its requests, until its session has expired, then"
        " continue it",
        ("stale-epoch-obeyed", "leader-completeness"),
        "KAFKA-1188",
        "workloads/test_controller.py -k moves --cluster=sim --replay=schedules/stale-leader-and-isr.json"
        " --rate=100 --time-limit=60",
    ),
    Defect(
        "last-replica",
        "a member of the in-sync set is elected although a power loss took its unsynced records",
        "kill two replicas, let the last one lose power, and restart that one first",
        ("lost-write", "inconsistent-offset"),
        "KIP-966",
        "workloads/test_storage.py -k unflushed --cluster=sim --replay=schedules/last-replica.json"
        " --rate=200 --time-limit=60",
    ),
    Defect(
        "early-isr-rejoin",
        "a follower rejoins the in-sync set at the high watermark, before it has all records of earlier leaders",
        "kill a leader and its other follower right after one has left the in-sync set",
        ("member-completeness",),
        "KAFKA-7128",
        "workloads/test_log.py --cluster=sim --replay=schedules/early-isr-rejoin.json --rate=200 --time-limit=60",
    ),
    Defect(
        "double-failover",
        "a follower truncates by the first answer about epochs, even if the leader lacks the follower's last epoch",
        "kill a leader, then kill its successor before the third replica has sent it a request",
        ("replica-divergence", "inconsistent-offset"),
        "KIP-279",
        "workloads/test_log.py --cluster=sim --replay=schedules/double-failover.json --rate=200 --time-limit=60",
    ),
    Defect(
        "hw-regression",
        "a new leader reports the log end before its high watermark has reached the start of its epoch",
        "a change of leader with slow followers",
        ("real-time-order",),
        "KAFKA-2334, KIP-207",
        "workloads/test_log.py --cluster=sim --nemesis=kill,connection-fetch,slow-network"
        " --workload-mix=handovers --rate=200 --time-limit=60",
    ),
    Defect(
        "former-incarnation",
        "a restarted broker accepts requests that the controller sent to its earlier incarnation",
        "restart a broker while the controller is slow to act on requests and to learn of the restart",
        ("no-recovery", "no-rejoin"),
        "KIP-380; KAFKA-7235",
        "workloads/test_log.py --cluster=sim --replay=schedules/former-incarnation.json --workload-mix=strict"
        " --rate=100 --time-limit=25 --set=controlled.shutdown.max.ms=1000",
    ),
    Defect(
        "wiped-replica",
        "a member of the in-sync set counts under any registration, although its disk may have been emptied since",
        "empty a follower's disk while its leader is about to write that it is in sync again, then kill that leader",
        ("lost-write", "vanished"),
        "KIP-903",
        "workloads/test_log.py --cluster=sim --replay=schedules/wiped-replica.json --rate=100 --time-limit=45"
        " --set=controlled.shutdown.max.ms=300",
    ),
    Defect(
        "cached-zk-version",
        "a leader keeps trying to write its in-sync set with a wrong cached version",
        "cut the leader from ZooKeeper for a moment while its in-sync set changes",
        ("no-rejoin",),
        "KAFKA-2729",
        "workloads/test_log.py --cluster=sim --replay=schedules/cached-zk-version.json --rate=100 --time-limit=60",
    ),
    Defect(
        "lost-registration",
        "a restarted broker mistakes its former session's registration for its own, and that registration expires",
        "restart a broker before its session has ended",
        ("unregistered",),
        "KAFKA-1387",
        "workloads/test_controller.py --cluster=sim --replay=schedules/shrunk/lost-registration.json"
        " --rate=100 --time-limit=16",
    ),
    Defect(
        "zombie-controller",
        "a controller that was replaced while it was paused continues to write to ZooKeeper",
        "stop the controller until its session has expired, then continue it",
        ("stale-epoch-obeyed",),
        "KAFKA-6082",
        "workloads/test_controller.py --replay=schedules/zombie-controller.json --time-limit=60",
    ),
    Defect(
        "no-crc-recovery",
        "recovery trusts the sizes of the entries, and checks no CRC and no offset",
        "garbage at the tail or flipped bits, then a restart",
        ("phantom", "inconsistent-offset"),
        "KAFKA-1112, KAFKA-1196",
        "workloads/test_log.py --replay=schedules/no-crc-recovery.json --time-limit=60",
    ),
    Defect(
        "no-directory-lock",
        "a broker does not lock its data directory, and a second one opens, repairs and truncates the live log",
        "start a broker a second time on the same directory, under load",
        ("inconsistent-offset", "unseen", "replica-hole"),
        "the file .lock in each log directory of Kafka prevents this",
        "workloads/test_log.py --nemesis=start-twice --set=preallocate=true --set=segment.bytes=16777216"
        " --rate=200 --time-limit=20",
    ),
    Defect(
        "index-trusted",
        "a truncation leaves the index as it is, and a stale entry sends a reader to a wrong position",
        "cut the leader from its followers, kill it, make it leader again, and read from the middle of its log",
        ("poll-skip", "vanished"),
        "OffsetIndex.truncateTo of Kafka prevents this; KAFKA-1112 (an index trusted at a start)",
        "workloads/test_storage.py --replay=schedules/index-trusted.json --rate=100 --time-limit=60",
    ),
    Defect(
        "hw-checkpoint-lost",
        "the checkpoint of high watermarks lacks followers' partitions, so a restarted follower truncates its log to 0",
        "stop all replicas, start them again, and kill the leader while the followers fetch everything again",
        ("lost-write", "vanished", "inconsistent-offset"),
        "KAFKA-1647",
        "workloads/test_storage.py --replay=schedules/hw-checkpoint-lost.json --nodes=5 --rate=100 --time-limit=60",
    ),
    Defect(
        "fetch-append-race",
        "a new leader answers followers that their offset is out of range, so they empty their logs and start over",
        "kill a leader, then its successor while the last replica starts over",
        ("lost-write", "vanished", "replica-divergence"),
        "KAFKA-2143",
        "workloads/test_log.py --cluster=sim --replay=schedules/fetch-append-race.json"
        " --nodes=5 --rate=100 --time-limit=60",
    ),
    Defect(
        "read-above-hw",
        "consumers see records above the high watermark, which a failover takes back",
        "cut the leader from its followers under tailing readers, then kill it",
        ("vanished", "inconsistent-offset"),
        "KAFKA-9835",
        "workloads/test_log.py --replay=schedules/isr-of-one.json --time-limit=60",
    ),
    Defect(
        "zombie-commit",
        "the coordinator accepts commits of any generation, so a member of an old generation rewinds its group",
        "let members come and go, and sometimes commit in their previous generation",
        ("zombie-commit",),
        "checking the generation prevents this (KIP-62, KAFKA-2464)",
        "workloads/test_offsets.py --time-limit=20",
    ),
    Defect(
        "zk-owner-overlap",
        "a consumer of the old design keeps consuming its partitions after its ZooKeeper session has expired",
        "cut a consumer from ZooKeeper, not from the brokers, for longer than its session lasts",
        ("double-ownership", "offset-regression"),
        "split brain, one of the reasons that the design of the 0.9 consumer gives for a coordinator",
        "workloads/test_zookeeper_group.py --nemesis=consumer-from-zookeeper --rate=100 --time-limit=25",
    ),
    Defect(
        "coordinator-amnesia",
        "a new coordinator serves before it has read the offsets that the former coordinator has stored",
        "kill the leader of the group's partition of the offsets topic",
        ("stale-read",),
        "KAFKA-1721; the error GROUP_LOAD_IN_PROGRESS prevents this",
        "workloads/test_offsets.py --nemesis=restart-rolling --time-limit=60",
    ),
    Defect(
        "retry-reorders",
        "a producer sends later message sets while an earlier one waits for its retry, so they overtake it",
        "asynchronous sends while a leader does not answer, or is gone",
        ("nonmonotonic-send",),
        "KAFKA-3197",
        "workloads/test_async_sends.py --replay=schedules/retry-reorders.json --time-limit=60",
    ),
    Defect(
        "silent-consumer",
        "after a rebalance has set a consumer back, it waits for offsets that it had fetched before, and reads no more",
        "a network partition, or any other fault that makes members leave and join",
        ("unseen", "orphaned-partition"),
        "KAFKA-2978",
        "workloads/test_group.py --cluster=sim --nemesis=partition --rate=100 --time-limit=60",
    ),
    Defect(
        "offsets-expire-active",
        "offsets expire by age even if their group has members, so the consumer of an idle partition starts over",
        "retain offsets for a short time, and commit nothing of one partition for longer",
        ("stale-read",),
        "KAFKA-4682, KIP-211",
        "workloads/test_offsets.py --replay=schedules/offsets-expire-active.json --rate=100 --time-limit=30"
        " --set=offsets.retention.ms=1000 --set=offsets.retention.check.interval.ms=200",
    ),
)

DEFECTS: Mapping[str, Defect] = MappingProxyType({defect.name: defect for defect in _ALL})
"""The defects by name."""
