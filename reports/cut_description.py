"""Describes the links that a fault has cut, from the evidence that it recorded."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

MOST_GROUPS: Final = 4
"""Maximum number of groups in words; further groups are counted."""

Way = tuple[str, str]
"""A direction of a link: (receiver that drops, sender). A link cut in both directions is two of them."""


def describe_cut(detail: Mapping[str, Any]) -> str | None:
    """Returns ``cut n1 from n2 and zk1, ZooKeeper included, as partition-one does``; None for a fault that has cut no
    link.

    ``detail`` is that of the fault's injected row. Nodes with many links come first. ZooKeeper is mentioned only if the
    evidence says whether it was cut off, and the name only if the evidence has a likeness.
    """
    evidence = detail.get("evidence")
    links = evidence.get("cut") if isinstance(evidence, dict) else None
    if not isinstance(evidence, dict) or not isinstance(links, list) or not links:
        return None
    said = list(_iterate_groups({way for link in links for way in _split_link(str(link))}))
    more = f" and {len(said) - MOST_GROUPS} more groups of links" if len(said) > MOST_GROUPS else ""
    zookeeper = evidence.get("zookeeper")
    extent = "" if zookeeper is None else ", ZooKeeper included" if zookeeper else ", not ZooKeeper"
    name = f", as {evidence['likeness']} does" if "likeness" in evidence else ""
    return f"cut {'; '.join(said[:MOST_GROUPS])}{more}{extent}{name}"


def _split_link(link: str) -> list[Way]:
    """Splits ``n1|n2`` into both directions, and ``n1<-n2`` into one."""
    near, sign, far = (*re.split(r"(\||<-)", link, maxsplit=1), "", "")[:3]
    return [(near, far), (far, near)] if sign == "|" else [(near, far)]


def _iterate_groups(left: set[Way]) -> Iterable[str]:
    while left:
        ends = Counter(near for near, _ in left)
        hub = min(ends, key=lambda node: (-ends[node], node))
        far = {other for near, other in left if near == hub}
        mutual = {other for other in far if (other, hub) in left}
        if mutual:
            yield f"{hub} from {_join_names(mutual)}"
        if far - mutual:
            yield f"what {hub} gets from {_join_names(far - mutual)}"
        left = left - {(hub, other) for other in far} - {(other, hub) for other in mutual}


def _join_names(names: set[str]) -> str:
    *most, last = sorted(names)
    return f"{', '.join(most)} and {last}" if most else last
