"""What the broker promises of every log, on top of what a workload forbids."""

from __future__ import annotations

import msgspec

from assay.checkers.contract import Contract


def promised(contract: Contract) -> Contract:
    """The same contract with linearizable log ends and dense offsets, and deletion as each broker's clock has it."""
    promises = msgspec.structs.replace(contract, linearizable_ends=True, dense_offsets=True)
    return promises.tolerate_under(
        "forbidden-deletion",
        faults=["clock"],
        because="a broker whose clock runs ahead takes records for older than they are",
    )
