"""All plants, and the reasons why an anomaly has none."""

from collections.abc import Iterable
from typing import Final

from assay.checkers.check import Family
from assay.harness.sensitivity.group_plants import GROUP_PLANTS
from assay.harness.sensitivity.log_plants import LOG_PLANTS
from assay.harness.sensitivity.object_plants import OBJECT_PLANTS
from assay.harness.sensitivity.plant import Plant
from assay.harness.sensitivity.register_plants import REGISTER_PLANTS
from assay.harness.sensitivity.transaction_plants import TRANSACTION_PLANTS

PLANTS: Final[tuple[Plant, ...]] = (
    *LOG_PLANTS,
    *REGISTER_PLANTS,
    *OBJECT_PLANTS,
    *GROUP_PLANTS,
    *TRANSACTION_PLANTS,
)

DEADLINE: Final = "it is about a deadline"
SERVERS: Final = "it is about servers' event logs, disks and answers at rest, not about what clients saw"
WHOLE_RUN: Final = "it is about the whole run, not about an object"
OWN_CHECK: Final = "it is found by a check of your own"
NO_PLANT: Final = "there is no edit for it"


def explain_unplanted(anomaly: str, families: Iterable[Family], built_in: Iterable[Family]) -> str:
    """Returns why an anomaly without a plant has none."""
    own = {check.anomaly for family in built_in for check in family.checks}
    for family in families:
        for check in family.checks:
            if check.anomaly == anomaly:
                if anomaly not in own:
                    return OWN_CHECK
                return DEADLINE if check.needs_end else SERVERS if family.about_servers else NO_PLANT
    return WHOLE_RUN
