"""Fork points of rare states are left more often; so are those that were not left yet."""

from __future__ import annotations

from collections import Counter
from random import Random

from assay.harness.search.archive import MOST_FORK_POINTS, Archive


def test_the_rare_is_chosen_more_often_and_what_was_chosen_less() -> None:
    archive: Archive[str] = Archive()
    for _ in range(99):
        archive.record_visits(["common"])
    archive.record_visits(["rare"])
    archive.add("often seen", ["common"])
    archive.add("seen once", ["common", "rare"])
    assert archive.known_features == {"common", "rare"}
    rng = Random(1)
    first = Counter(str(chosen.item) for chosen in (archive.choose(rng) for _ in range(30)) if chosen is not None)
    assert first["seen once"] > 2 * first["often seen"]
    rare = next(kept for kept in archive._entries if kept.item == "seen once")
    assert archive.weight(rare) < 1 / 2**0.5, "it has been chosen"


def test_what_is_favoured_is_chosen_so_many_times_as_often_and_kept_longer() -> None:
    archive: Archive[str] = Archive()
    archive.add("turning point", ["a"], 4.0)
    archive.add("other", ["b"])
    favoured, other = archive._entries
    assert archive.weight(favoured) == 4 * archive.weight(other)
    gone = [one for number in range(MOST_FORK_POINTS) for one in archive.add(f"{number}", ["c"])]
    assert len(gone) == 2
    assert "turning point" not in gone


def test_what_costs_a_fourth_is_chosen_twice_as_often() -> None:
    archive: Archive[str] = Archive()
    archive.add("early in a run", ["a"], cost=4000)
    archive.add("late in a run", ["b"], cost=1000)
    early, late = archive._entries
    assert archive.weight(late) == 2 * archive.weight(early)


def test_what_is_disfavoured_is_chosen_less_often() -> None:
    archive: Archive[str] = Archive()
    archive.add("of a run that was unknown", ["a"])
    archive.add("other", ["b"])
    archive.disfavour(lambda item: item != "other", 0.25)
    doubtful, other = archive._entries
    assert archive.weight(doubtful) == archive.weight(other) / 4


def test_uniform_choice_knows_no_rarity() -> None:
    archive: Archive[str] = Archive(uniform_weights=True)
    archive.record_visits(["rare"])
    archive.add("a", ["common"])
    archive.add("b", ["rare"])
    assert {archive.weight(kept) for kept in archive._entries} == {1.0}


def test_no_more_are_kept_than_there_may_be_and_the_least_rare_goes_first() -> None:
    archive: Archive[int] = Archive()
    gone: list[int] = []
    for number in range(MOST_FORK_POINTS + 5):
        for _ in range(1 + number % 7):
            archive.record_visits([f"cell {number}"])
        gone += archive.add(number, [f"cell {number}"])
    assert len(archive) == MOST_FORK_POINTS
    assert len(gone) == 5
    assert all(number % 7 >= 4 for number in gone)
    assert archive.clear() == [kept for kept in range(MOST_FORK_POINTS + 5) if kept not in gone]
    assert archive.choose(Random(1)) is None
