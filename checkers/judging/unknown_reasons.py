"""Longer texts for reasons why a verdict is unknown."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from assay.checkers.check import Family
from assay.checkers.engine import Engine
from assay.harness.core.history.kinds import KINDS as OF_FORMAT
from assay.harness.core.history.kinds import UNRECORDED


def find_unknown_kinds(kinds: Collection[str], families: Sequence[Family]) -> list[str]:
    """Returns a reason for each kind of effect that the format does not have, such as a typo in a client's
    ``effects``."""
    checks = [check for family in families for check in family.checks]
    known = {kind for some in (*OF_FORMAT.values(), *(check.kinds for check in checks)) for kind in some}
    found = []
    for kind in sorted(set(kinds) - known):
        near = get_close_matches(kind, sorted(known), 1)
        found.append(f"no check knows effects of kind {kind}" + (f"; was {near[0]} meant?" if near else ""))
    return found


def describe_unrecorded(engine: Engine, against: Sequence[str]) -> str:
    """Returns the reason if some operations have no effects, so that others may be accused wrongly by ``against``
    (anomalies)."""
    (row,) = engine.rows(f"select sum(many) as many from effect_kinds where kind = '{UNRECORDED}'")
    return (
        f"{', '.join(sorted(against))}: of {row['many']} operations it is not known what they did, since the client's "
        "effects() raised, so nothing that contradicts the others proves anything"
    )


def describe_standstill(overdue: Sequence[str], stood_still: float) -> str:
    """Returns the reason if the tester itself stood still for that many seconds."""
    return (
        f"{', '.join(overdue)}: deadlines were missed, but for {stood_still:.1f} s in all this machine did not let the "
        "tester itself go on (it, or its disk, was too busy, or it was paused), so it proves nothing; do it again when "
        "there is less to do"
    )
