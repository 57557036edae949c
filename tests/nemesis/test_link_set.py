"""Links that are drawn one by one: what is drawn, what the mix leaves of it, and the name of what it comes to."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.nemesis.engine.cut_ledger import Drop, cut_both_ways
from assay.nemesis.engine.reporter import FaultPhase
from assay.nemesis.faults.cut_shape_names import find_shape_name
from assay.nemesis.faults.fault import Census
from assay.nemesis.faults.link_set import LINKS, SHAPE_NAME, draw_links, keep_links_of_minority, read_links
from assay.nemesis.faults.one_way import OneWay
from assay.nemesis.faults.partition import PartitionFault
from assay.nemesis.schedule.schedule import FaultSchedule, FaultStep, PartitionShape
from assay.nemesis.schedule.target import Target, TargetKind, named_target

from helpers.nemesis_fakes import FAULTS, FakeCluster, Play, draw
from helpers.nemesis_fakes import links as cut_by

SEEDS = st.integers(0, 2**32)
COUNTS = st.builds(
    Census,
    servers=st.integers(2, 7),
    zookeepers=st.integers(0, 3),
    clients=st.integers(0, 3),
    sessions=st.booleans(),
)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(1, count + 1)]


def graph(census: Census) -> set[frozenset[str]]:
    """The links on which anything is ever said."""
    servers, keepers = names("n", census.servers), names("zk", census.zookeepers)
    clients = names("client", census.clients)
    pairs = [*itertools.combinations([*servers, *keepers], 2), *itertools.product(clients, servers)]
    return {frozenset(pair) for pair in [*pairs, *(itertools.product(clients, keepers) if census.sessions else ())]}


def ends(word: str) -> frozenset[str]:
    return frozenset(re.split(r"\||<-", word))


def of_servers(word: str) -> bool:
    return all(name.startswith("n") for name in ends(word))


def lively(word: str, census: Census) -> bool:
    """Is something said on it in every second?"""
    server_and_keeper = "zk1" in ends(word) and "client" not in word and word.count("zk") == 1
    return of_servers(word) or (server_and_keeper and census.zookeepers == 1)


@given(SEEDS, COUNTS)
def test_something_is_said_on_one_link_at_least_all_the_time(seed: int, census: Census) -> None:
    words = str(draw_links(random.Random(seed), census)[1][LINKS]).split()
    assert any(lively(word, census) for word in words)


@given(SEEDS, COUNTS)
def test_each_link_that_is_cut_is_one_of_the_graph_and_is_cut_once(seed: int, census: Census) -> None:
    target, parameters = draw_links(random.Random(seed), census)
    words = str(parameters[LINKS]).split()
    assert parameters["shape"] == LINKS
    assert (target, parameters) == draw_links(random.Random(seed), census)
    assert Counter(map(ends, words)).most_common(1)[0][1] == 1
    assert set(map(ends, words)) <= graph(census)
    assert len(read_links(str(parameters[LINKS]))) == sum(2 if "|" in word else 1 for word in words)


@given(SEEDS, COUNTS)
def test_the_targets_are_the_servers_with_a_link_cut_of_which_there_are_some(seed: int, census: Census) -> None:
    target, parameters = draw_links(random.Random(seed), census)
    touched = {name for word in str(parameters[LINKS]).split() for name in ends(word)}
    assert target == named_target(*sorted(touched.intersection(names("n", census.servers))))


@pytest.mark.parametrize("census", [Census(3, 3, None, 2, (), True), Census(3, 3, None, 2)], ids=["old", "new"])
def test_every_link_is_drawn_now_and_then_most_of_them_both_ways(census: Census) -> None:
    drawn = [draw_links(random.Random(seed), census)[1] for seed in range(400)]
    words = Counter(word for parameters in drawn for word in str(parameters[LINKS]).split())
    found = Counter({ends(word): 0 for word in words})
    for word, count in words.items():
        found[ends(word)] += count
    assert set(found) == graph(census)
    assert all(400 * 0.2 < count < 400 * 0.5 for count in found.values())
    one_way = [word for word in words if "<-" in word]
    assert 0.15 < sum(words[word] for word in one_way) / words.total() < 0.35
    assert {tuple(word.split("<-")) for word in one_way} == {tuple(order) for link in found for order in pairs(link)}


def pairs(link: frozenset[str]) -> Sequence[tuple[str, ...]]:
    return list(itertools.permutations(link))


@given(SEEDS, COUNTS)
def test_the_mix_leaves_a_majority_its_links_with_each_other_zookeeper_and_clients(seed: int, census: Census) -> None:
    rng = random.Random(seed)
    meant = str(draw_links(rng, census)[1][LINKS])
    target, parameters = keep_links_of_minority(rng, census, meant)
    words = str(parameters[LINKS]).split()
    assert words
    suffering = set(target.names)
    assert 1 <= len(suffering) <= max(1, (census.servers - 1) // 2)
    assert all(ends(word) & suffering for word in words)
    added = set(words) - set(meant.split())
    assert len(added) <= (0 if any(map(of_servers, set(words) & set(meant.split()))) else 1)
    assert any(lively(word, census) for word in words)
    assert set(map(ends, words)) <= graph(census)


@given(SEEDS)
def test_what_the_mix_leaves_is_all_that_was_drawn_for_a_minority(seed: int) -> None:
    census = Census(5, 1)
    meant = str(draw_links(random.Random(seed), census)[1][LINKS])
    target, parameters = keep_links_of_minority(random.Random(seed), census, meant)
    left = {word for word in meant.split() if ends(word) & set(target.names)}
    assert left <= set(str(parameters[LINKS]).split())


# -- names -------------------------------------------------------------------------------------------------------------

NODES: Final = {"servers": 5, "keepers": 3, "clients": 2}


def name_of(text: str | Sequence[Drop], leads: Sequence[str] = (), **counts: int) -> str | None:
    drops = read_links(text) if isinstance(text, str) else text
    given = NODES | counts
    servers, keepers = names("n", given["servers"]), names("zk", given["keepers"])
    return find_shape_name(drops, servers, keepers, names("client", given["clients"]), leads)


def crossed(left: str, right: str) -> str:
    return " ".join(f"{near}|{far}" for near in left.split() for far in right.split())


ZK: Final = "zk1 zk2 zk3"
NAMED: Final[list[tuple[str, str, str, dict[str, Any]]]] = [
    # the name, its links, and the nearest that have none
    ("partition-one", crossed("n2", "n1 n3 n4 n5"), crossed("n2", "n1 n3 n4"), {}),
    ("partition-one", crossed("n2", f"n1 n3 n4 n5 {ZK}"), crossed("n2", "n1 n3 n4 n5 zk1 zk2"), {}),
    ("partition-one", crossed("zk1", "n1 n2 n3 n4 n5 zk2 zk3"), crossed("zk1", "n1 n2 n3 n4 n5 zk2"), {}),
    ("partition-one", crossed("n2", "n1 n3"), crossed("n2", "n1 n3 client1"), {"servers": 3}),
    ("partition-one", "n1|n2", "n1|n2 n2<-zk1", {"servers": 2}),
    ("partition-halves", crossed("n1 n4", "n2 n3"), crossed("n1 n4", "n2 n3") + " n2|n3", {"servers": 4}),
    ("partition-majority-minority", crossed("n2 n5", "n1 n3 n4"), crossed("n2 n5", "n1 n3 n4 zk1"), {}),
    (
        "partition-random-halves",
        crossed("n1 n2 zk1", "n3 n4 n5 zk2 zk3"),
        crossed("n1 n2", f"n3 n4 n5 {ZK}"),
        {},
    ),
    ("partition-random-halves", crossed("n1 zk1", "n2 n3"), crossed("n1 zk1", "n2 n3") + " n1|zk1",
     {"servers": 3, "keepers": 1}),
    ("partition-majorities-ring", "n1|n3 n1|n4 n2|n4 n2|n5 n3|n5", "n1|n3 n1|n4 n2|n4 n3|n5", {}),
    ("partition-majorities-ring", "n1|n2 n3|n4", "n1|n2 n3|n4 n1|zk1", {"servers": 4}),
    ("partition-bridge", crossed("n1 n2", "n4 n5"), crossed("n1 n2", "n4 n5") + " n3|n4", {}),
    ("partition-bridge", "n1|n3", "n1<-n3 n2<-n1", {"servers": 3}),
    ("partition-from-zookeeper", crossed("n3", ZK), crossed("n3", "zk1 zk2"), {}),
    ("partition-from-zookeeper", crossed("n3 n4", ZK), crossed("n3 n4", ZK) + " n3|n4", {}),
    ("partition-leader-and-follower", crossed("n1 n4", f"n2 n3 n5 {ZK}"), crossed("n1 n4", "n2 n3 n5 zk1 zk2"),
     {"leads": ["n4"]}),
    ("partition-follower-from-leader", "n1|n4", "n1<-n4", {"leads": ["n4"]}),
    ("partition-follower-from-leader", "n1|n2", "n1|n2 n3|zk1", {"leads": ["n2"], "servers": 3}),
    ("partition-one-way", "n2<-n1 n2<-n3 n2<-n4 n2<-n5", "n2<-n1 n2<-n3 n2<-n4 n5<-n2", {}),
    ("partition-one-way", "n1<-n2 n3<-n2 n1<-n2 zk1<-n2", "n1<-n2 n3<-n2 zk1|n2", {"servers": 3, "keepers": 1}),
    ("cut-consumer", crossed("client2", "n1 n2 n3 n4 n5"), crossed("client2", "n1 n2 n3 n4 n5 zk1"), {}),
    ("consumer-from-zookeeper", crossed("client1", ZK), crossed("client1", f"{ZK} n1"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cut", "near", "given"), NAMED)
def test_links_that_are_a_known_shape_have_its_name_and_their_nearest_neighbour_has_none(
    name: str, cut: str, near: str, given: dict[str, Any]
) -> None:
    assert name in FAULTS
    assert name_of(cut, **given) == name
    assert name_of(near, **given) is None


@pytest.mark.parametrize(
    ("cut", "given"),
    [
        (crossed("n1 n4", f"n2 n3 n5 {ZK}"), {}),
        ("n1|n4", {}),
        (crossed("n1 n4", f"n2 n3 n5 {ZK}"), {"leads": ["n2"]}),
        ("n1|n4", {"leads": ["n2", "n3"]}),
    ],
)
def test_a_pair_has_a_name_only_where_one_of_the_two_leads(cut: str, given: dict[str, Any]) -> None:
    assert name_of(cut, **given) is None


def test_without_zookeeper_a_leader_and_one_other_are_a_minority_like_any() -> None:
    assert name_of(crossed("n1 n4", "n2 n3 n5"), leads=["n4"], keepers=0) == "partition-majority-minority"


def test_a_ring_is_cut_both_ways() -> None:
    drops = [(f"n{number + 1}", f"n{(number + step) % 5 + 1}") for number in range(5) for step in (1, 2)]
    assert name_of(drops) is None


def test_every_shape_that_cuts_links_of_servers_is_known() -> None:
    shapes = {f"partition-{shape}" for shape in PartitionShape} - {"partition-links"}
    # These are the shape ``one`` of a node that was chosen for what it does.
    assert {name for name, *_ in NAMED if name.startswith("partition-")} - {"partition-one-way"} == shapes - {
        "partition-isolate-leader",
        "partition-isolate-controller",
    }


@given(
    st.sampled_from([*PartitionShape]), st.integers(4, 7), st.integers(1, 3), st.integers(0, 2**16 - 1), st.booleans()
)
def test_what_a_fault_cuts_has_a_name(
    shape: PartitionShape, servers: int, keepers: int, order: int, zookeeper: bool
) -> None:
    everyone = names("n", servers)
    few = {
        PartitionShape.MAJORITY_MINORITY: (servers - 1) // 2,
        PartitionShape.HALVES: servers // 2,
        PartitionShape.RANDOM_HALVES: servers // 2,
    }
    if shape in (PartitionShape.LINKS, PartitionShape.FOLLOWER_FROM_LEADER):
        return
    targets = everyone if shape is PartitionShape.MAJORITIES_RING else everyone[: few.get(shape, 1)]
    drops = cut_by(
        PartitionFault(shape),
        servers,
        targets,
        keepers,
        order=order,
        zookeeper=zookeeper and shape is PartitionShape.ONE,
    )
    leads = targets if shape is PartitionShape.LEADER_AND_FOLLOWER else ()
    found = name_of(sorted(drops), leads=leads, servers=servers, keepers=keepers)
    same = {
        PartitionShape.ISOLATE_LEADER: "partition-one",
        PartitionShape.ISOLATE_CONTROLLER: "partition-one",
        PartitionShape.MAJORITY_MINORITY: "partition-one" if servers == 4 else "partition-majority-minority",
        PartitionShape.HALVES: "partition-halves" if servers % 2 == 0 else "partition-majority-minority",
    }
    assert found == same.get(shape, f"partition-{shape}")


@given(st.sampled_from(["inbound", "outbound"]), st.integers(2, 5), st.booleans())
def test_what_is_cut_one_way_has_a_name(direction: str, servers: int, zookeeper: bool) -> None:
    drops = cut_by(OneWay(), servers, ["n2"], direction=direction, zookeeper=zookeeper)
    assert name_of(sorted(drops), servers=servers, keepers=1) == "partition-one-way"


@given(SEEDS, st.integers(3, 5))
def test_a_name_does_not_hang_on_the_nodes_numbers(seed: int, servers: int) -> None:
    cut = str(draw_links(random.Random(seed), Census(servers, 1))[1][LINKS])
    order = names("n", servers)
    other = dict(zip(order, random.Random(seed).sample(order, servers), strict=True))
    renamed = [(other.get(near, near), other.get(far, far)) for near, far in read_links(cut)]
    assert name_of(cut, servers=servers, keepers=1) == name_of(renamed, servers=servers, keepers=1)


def play(links: str) -> Play:
    step = FaultStep(2.0, "partition-links", named_target("n1", "n2"), 5.0, {"shape": LINKS, LINKS: links})
    made = Play(FaultSchedule(1, (step,)), FakeCluster(3))
    made.play()
    return made


@pytest.mark.parametrize(
    ("cut", "name"),
    [
        ("n1|n2 n1|n3", "partition-one"),
        ("n1|n2", "partition-follower-from-leader"),
        ("n1|n2 n2<-zk1", None),
    ],
)
def test_the_row_of_the_injection_has_the_name_and_so_has_progress(cut: str, name: str | None) -> None:
    row = play(cut).row(1, FaultPhase.INJECTED)
    assert row.detail["evidence"].get(SHAPE_NAME) == name
    assert row.detail["parameters"][LINKS] == cut
    assert str(row) == ("partition-links n1+n2" if name is None else f"partition-links n1+n2 (as {name})")


@pytest.mark.parametrize(
    ("cut", "targets"),
    [
        ("n1|n2", ("n1", "n2")),
        ("n1|n2 n1<-client2", ("n1", "n2", "client2")),
        ("n1|n2 client1|zk1 n2|client2", ("n1", "n2", "client1", "client2")),
    ],
)
def test_client_nodes_are_targets_where_their_links_are_cut(cut: str, targets: tuple[str, ...]) -> None:
    made = play(cut)
    for phase in (FaultPhase.INJECTED, FaultPhase.HEALED, FaultPhase.RECOVERED):
        assert made.row(1, phase).targets == targets
        assert made.row(1, phase).on_clients is (len(targets) > 2)
    assert made.row(1, FaultPhase.HEALED).took_effect is True
    assert made.record.as_resolved().steps[0].target == named_target(*targets)


@pytest.mark.parametrize(("other", "together"), [("cut-consumer", False), ("stop-consumer", True)])
def test_no_other_fault_of_links_is_drawn_for_a_client_node_at_the_same_time(other: str, together: bool) -> None:
    overlaps = False
    for seed in range(40):
        steps = draw(seed, ["partition-links", other], census=Census(3, 1, ("orders-0",), 2), time_limit=60.0).steps
        overlaps |= any(later.at < first.until for first, later in itertools.pairwise(steps))
    assert overlaps is together


def test_who_leads_is_asked_only_where_the_name_hangs_on_it() -> None:
    assert [what for what, _ in play("n1|n2 n1|n3").system.asked] == []
    assert play("n1|n2").system.asked[0] == ("leader", "orders-0")


def test_a_step_of_another_shape_is_not_named_again() -> None:
    made = Play(FaultSchedule(1, (FaultStep(2.0, "partition-one", Target(TargetKind.ONE), 5.0),)))
    made.play()
    row = made.row(1, FaultPhase.INJECTED)
    assert SHAPE_NAME not in row.detail["evidence"]
    assert "(as" not in str(row)


def test_both_ways_is_two_drops() -> None:
    assert read_links("n1|n2") == cut_both_ways(["n1"], ["n2"])
