"""Any subset of the links between a cluster's nodes, as a parameter of a step: ``n1|n2 n3<-zk1``.

``n1|n2`` is cut in both directions. With ``n3<-zk1``, only n3 drops the packets that arrive from zk1.
"""

import itertools
import random
import re
from collections.abc import Collection, Sequence
from typing import Final

from assay.nemesis.engine.cut_ledger import Drop
from assay.nemesis.faults.fault import Census
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, TargetError, named_target

LINKS: Final = "links"
SHAPE_NAME: Final = "likeness"
"""Key of the evidence: its value is the fault that cuts exactly these links, if there is one."""
SHARES: Final = (0.2, 0.35, 0.5)
"""Probabilities that a link is cut."""
ONE_WAY: Final = 0.25
"""Probability that a cut link is cut in one direction only."""


def draw_links(rng: random.Random, census: Census) -> tuple[Target, dict[str, Parameter]]:
    """Draws each link independently. Returns the servers with a cut link, and the links."""
    servers = census.names
    keepers = [f"zk{number}" for number in range(1, census.zookeepers + 1)]
    clients = [f"client{number}" for number in range(1, census.clients + 1)]
    possible = [
        *itertools.combinations(servers, 2),
        *itertools.product(servers, keepers),
        *itertools.product(clients, servers),
        *itertools.combinations(keepers, 2),
        *(itertools.product(clients, keepers) if census.sessions else ()),
    ]
    with_traffic = [link for link in possible if _always_has_traffic(link, census)]
    if not with_traffic:
        raise ScheduleError(
            f"links: the cluster has {census.servers} server{'s' * (census.servers != 1)} and no link that can be "
            "cut: set --nodes=3"
        )
    share = rng.choice(SHARES)
    chosen = [link for link in possible if rng.random() < share]
    if not set(with_traffic) & set(chosen):
        chosen.append(rng.choice(with_traffic))
    return _to_parameters(rng, chosen, census)


def _always_has_traffic(link: Collection[str], census: Census) -> bool:
    """Returns whether the link always has traffic.

    A server uses only one ZooKeeper node, and a client may use any server, so those links may be silent.
    """
    ours = sum(name in census.names for name in link)
    return ours == 2 or (ours == 1 and "zk1" in link and census.zookeepers == 1)


def keep_links_of_minority(rng: random.Random, census: Census, links: str) -> tuple[Target, dict[str, Parameter]]:
    """Returns only the links of a random minority of the servers, so that the majority keeps all its other links."""
    servers = census.names
    minority = rng.sample(servers, max(1, (census.servers - 1) // 2))
    words = [word for word in links.split() if set(_link_ends(word)) & set(minority)]
    peers = [name for name in servers if name not in minority] or [
        f"zk{number + 1}" for number in range(census.zookeepers)
    ]
    if peers and not any(_always_has_traffic(_link_ends(word), census) for word in words):
        words.append(f"{minority[0]}|{rng.choice(peers)}")
    touched = {name for word in words for name in _link_ends(word)}
    whom = named_target(*(name for name in servers if name in touched & set(minority)))
    return whom, {"shape": LINKS, LINKS: " ".join(words)}


def _link_ends(word: str) -> list[str]:
    return re.split(r"\||<-", word)


def _to_parameters(
    rng: random.Random, chosen: Sequence[tuple[str, str]], census: Census
) -> tuple[Target, dict[str, Parameter]]:
    words = []
    for near, far in chosen:
        if rng.random() < ONE_WAY:
            near, far = rng.sample((near, far), 2)
            words.append(f"{near}<-{far}")
        else:
            words.append(f"{near}|{far}")
    servers = sorted({name for link in chosen for name in link if name in census.names})
    return named_target(*servers), {"shape": LINKS, LINKS: " ".join(words)}


def read_links(text: Parameter) -> list[Drop]:
    """Parses a list of links. Raises ``TargetError`` if it is invalid."""
    drops: set[Drop] = set()
    for word in str(text).split():
        link = re.fullmatch(r"(\w+)(\||<-)(\w+)", word)
        if link is None:
            raise TargetError(
                f"the parameter links has {word!r}; write each link as n1|n2 or n1<-n2, with blanks between links"
            )
        drops.add((link[1], link[3]))
        if link[2] == "|":
            drops.add((link[3], link[1]))
    return sorted(drops)
