"""All chance of a run: the sources draw as they always did, and begin again from another seed in place."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from assay.cluster.rng import RandomSources

LABELS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True)
SEEDS = st.integers(0, 2**63 - 1)


@given(LABELS)
def test_until_it_is_reseeded_a_source_draws_as_a_random_of_its_label_does(labels: list[str]) -> None:
    chance = RandomSources()
    sources = [chance.source(label) for label in labels]
    assert [source.random() for source in sources] == [Random(label).random() for label in labels]
    assert chance.source("targets", 7).random() == Random(7).random()


@given(LABELS, SEEDS, st.lists(st.integers(0, 5), min_size=6, max_size=6), st.integers(0, 6))
def test_after_a_reseed_draws_depend_on_the_seed_and_the_label_alone(
    labels: list[str], seed: int, drawn: list[int], before: int
) -> None:
    """Not on what had been drawn by then, nor on which of the sources were there already."""

    def draws(drawn: list[int], before: int) -> list[list[float]]:
        chance = RandomSources()
        sources = {label: chance.source(label) for label in labels[:before]}
        bound = {label: source.random for label, source in sources.items()}
        for source, count in zip(sources.values(), drawn, strict=False):
            for _ in range(count):
                source.random()
        chance.reseed(seed)
        for label in labels:
            bound.setdefault(label, chance.source(label).random)
        return [[draw(), draw()] for draw in (bound[label] for label in labels)]

    found = draws(drawn, before)
    assert found == draws([], len(labels))
    assert len({first for first, _ in found}) == len(labels), "each label has chance of its own"


def test_two_seeds_draw_differently_and_listeners_hear_of_it() -> None:
    heard: list[int] = []
    chance = RandomSources()
    source = chance.source("network")
    chance.listen("workload", heard.append)
    found = []
    for seed in (1, 2, 1):
        chance.reseed(seed)
        found.append(source.random())
    assert found[0] == found[2] != found[1]
    assert heard[0] == heard[2] != heard[1]


def test_a_source_that_no_one_holds_is_let_go_of() -> None:
    chance = RandomSources()
    kept = chance.source("kept")
    for number in range(100):
        chance.source(f"client {number}")
    assert len(chance._sources) == 1
    assert kept.random() == Random("kept").random()
