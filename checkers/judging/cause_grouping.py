"""One cause is one finding: what several checks say of the same record is shown beneath one of them.

A finding belongs to another where its check declares that the other's anomaly is the better name
(``Check.explained_by``) and both are about the same: one offset, value, poll or answer of one key, never the names
alone. Or the same check has found the same already, on another replica, say, or in an earlier epoch
(``Check.seen_again``).
So two independent causes do not hide each other. All count for the contract as before, and one that is forbidden is
never shown beneath one that is tolerated.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from assay.checkers.judging.verdict import Finding


def with_causes(
    findings: Sequence[Finding],
    explained_by: Mapping[str, Sequence[str]],
    forbids: Callable[[str], bool],
    seen_again: Collection[str] = (),
) -> tuple[Finding, ...]:
    """The findings in the same order, each with the place of the one beneath which it is shown, if there is one.

    ``explained_by`` and ``seen_again``: what the checks of these anomalies declare.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for place, finding in enumerate(findings):
        for about in finding.about:
            places.setdefault((finding.anomaly, about), []).append(place)
    direct: dict[int, int] = {}
    firsts: dict[tuple[str, str], int] = {}
    for place, finding in enumerate(findings):
        for anomaly in explained_by.get(finding.anomaly, ()):
            heads = [head for about in finding.about for head in places.get((anomaly, about), ())]
            if heads and (forbids(anomaly) or not forbids(finding.anomaly)):
                direct[place] = min(heads)
                break
        else:
            if finding.anomaly in seen_again and finding.about:
                first = firsts.setdefault((finding.anomaly, finding.about[0]), place)
                direct |= {} if first == place else {place: first}
    return tuple(
        msgspec.structs.replace(finding, same_cause_as=_root(place, direct)) if place in direct else finding
        for place, finding in enumerate(findings)
    )


def _root(place: int, direct: Mapping[int, int]) -> int:
    """Declarations have no circles, so this comes to an end."""
    while place in direct:
        place = direct[place]
    return place
