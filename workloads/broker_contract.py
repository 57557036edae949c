"""What the broker promises of every log, on top of what a workload forbids."""

import msgspec

from assay.checkers.contract import Contract


def promised(contract: Contract) -> Contract:
    """The same contract with linearizable log ends and dense offsets."""
    return msgspec.structs.replace(contract, linearizable_ends=True, dense_offsets=True)
