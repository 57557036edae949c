"""Who of a group in the old design gets which partitions: every member computes it from the same data.

As ``RangeAssignor`` of Kafka 0.8 - 0.10: of each topic a contiguous range to each consumer thread.
"""

from collections.abc import Iterable, Mapping, Sequence

from assay.system_under_test.client.assignors import Partition


def thread_id(consumer_id: str, index: int) -> str:
    """What an owner's znode holds."""
    return f"{consumer_id}-{index}"


def allot(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Iterable[str]]) -> dict[Partition, str]:
    """From each topic's partitions and each topic's thread ids to the thread that owns each partition.

    Threads sort as strings, ``c-10`` before ``c-2``. With n = partitions div threads each gets n in a row, and the
    first (partitions mod threads) of them one more; threads that are left over get none.
    """
    owners: dict[Partition, str] = {}
    for topic, indexes in partitions.items():
        takers = sorted(threads.get(topic, ()))
        if not takers:
            continue
        waiting = iter(sorted(indexes))
        each, more = divmod(len(indexes), len(takers))
        for rank, taker in enumerate(takers):
            for _ in range(each + (rank < more)):
                owners[topic, next(waiting)] = taker
    return owners
