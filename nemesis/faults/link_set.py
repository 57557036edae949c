"""Any subset of the links between the nodes of a cluster, as a parameter of a step: ``n1|n2 n3<-zk1``.

``n1|n2`` is cut both ways; ``n3<-zk1``: n3 alone drops what arrives from zk1.
"""

import itertools
import random
import re
from collections.abc import Collection, Sequence
from typing import Final

from assay.nemesis.engine.cut_ledger import Drop
from assay.nemesis.faults.fault import Census
from assay.nemesis.schedule.schedule import Parameter, ScheduleError
from assay.nemesis.schedule.target import Target, TargetError, named

LINKS: Final = "links"
LIKENESS: Final = "likeness"
"""In the evidence: the fault that cuts just these links, where there is one."""
SHARES: Final = (0.2, 0.35, 0.5)
"""How many of the links are cut."""
ONE_WAY: Final = 0.25


def drawn_links(rng: random.Random, census: Census) -> tuple[Target, dict[str, Parameter]]:
    """The servers that have a link cut, and the links. Every link is drawn for itself."""
    servers = census.names
    keepers = [f"zk{number}" for number in range(1, census.zookeepers + 1)]
    clients = [f"client{number}" for number in range(1, census.clients + 1)]
    graph = [
        *itertools.combinations(servers, 2),
        *itertools.product(servers, keepers),
        *itertools.product(clients, servers),
        *itertools.combinations(keepers, 2),
        *(itertools.product(clients, keepers) if census.sessions else ()),
    ]
    lively = [link for link in graph if _lively(link, census)]
    if not lively:
        raise ScheduleError(f"links: between {census.servers} servers there is no link to cut (--nodes=3)")
    share = rng.choice(SHARES)
    chosen = [link for link in graph if rng.random() < share]
    if not set(lively) & set(chosen):
        chosen.append(rng.choice(lively))
    return _cut(rng, chosen, census)


def _lively(link: Collection[str], census: Census) -> bool:
    """Is something said on it all the time? A server speaks to one node of ZooKeeper, a client to whom it likes."""
    ours = sum(name in census.names for name in link)
    return ours == 2 or (ours == 1 and "zk1" in link and census.zookeepers == 1)


def spared(rng: random.Random, census: Census, links: str) -> tuple[Target, dict[str, Parameter]]:
    """The same without the links of a majority of the servers, drawn, with each other, ZooKeeper and clients."""
    servers = census.names
    rest = rng.sample(servers, max(1, (census.servers - 1) // 2))
    words = [word for word in links.split() if set(_ends(word)) & set(rest)]
    peers = [name for name in servers if name not in rest] or [f"zk{number + 1}" for number in range(census.zookeepers)]
    if peers and not any(_lively(_ends(word), census) for word in words):
        words.append(f"{rest[0]}|{rng.choice(peers)}")
    touched = {name for word in words for name in _ends(word)}
    whom = named(*(name for name in servers if name in touched & set(rest)))
    return whom, {"shape": LINKS, LINKS: " ".join(words)}


def _ends(word: str) -> list[str]:
    return re.split(r"\||<-", word)


def _cut(rng: random.Random, chosen: Sequence[tuple[str, str]], census: Census) -> tuple[Target, dict[str, Parameter]]:
    words = []
    for near, far in chosen:
        if rng.random() < ONE_WAY:
            near, far = rng.sample((near, far), 2)
            words.append(f"{near}<-{far}")
        else:
            words.append(f"{near}|{far}")
    servers = sorted({name for link in chosen for name in link if name in census.names})
    return named(*servers), {"shape": LINKS, LINKS: " ".join(words)}


def read_links(text: Parameter) -> list[Drop]:
    """Raises ``TargetError`` for what is no list of links."""
    drops: set[Drop] = set()
    for word in str(text).split():
        link = re.fullmatch(r"(\w+)(\||<-)(\w+)", word)
        if link is None:
            raise TargetError(f"links are written n1|n2 or n1<-n2, with blanks between, not {word!r}")
        drops.add((link[1], link[3]))
        if link[2] == "|":
            drops.add((link[3], link[1]))
    return sorted(drops)
