"""Which relations a query reads, which engine has them, and which are of few rows."""

from __future__ import annotations

import pyarrow as pa

from assay.checkers.engine.names import Names

ROWS = pa.table({"key": ["a"]})


def reported(names: Names, sql: str, engine: str = "here") -> list[str]:
    return [name for name, _ in names.missing(sql, engine)]


def names() -> Names:
    """``many`` is another engine's; ``mixed`` reads both."""
    made = Names()
    made.few("few", ROWS)
    made.many("many", "there")
    made.view("some", "select * from few where key = 'many'")
    made.view("mixed", "select * from some join many on some.key = many.key")
    return made


def test_what_is_asked_of_few_rows_alone_is_known() -> None:
    assert names().has_few("select * from some, few")
    assert names().has_few("select 'many' from some"), "a text is no name"
    assert not names().has_few("select * from mixed")
    assert not names().has_few("select * from few where exists (select * from many)")
    assert not names().has_few("select 1"), "it may be about anything"


def test_an_engine_gets_a_relation_once_and_after_what_it_reads() -> None:
    made = names()
    assert reported(made, "select * from mixed") == ["few", "some", "many", "mixed"]
    assert reported(made, "select * from mixed") == []
    assert reported(made, "select * from mixed", "there") == ["few", "some", "mixed"], "many is its own"


def test_an_engine_gets_the_readers_of_a_name_again_when_it_stands_for_something_else() -> None:
    made = names()
    assert reported(made, "select * from mixed")
    assert not reported(made, "select * from mixed")
    made.few("few", ROWS)
    assert reported(made, "select * from mixed") == ["few", "some", "mixed"], "but not of what does not read it"


def test_a_name_may_come_to_stand_for_many_rows_and_back() -> None:
    made = names()
    made.many("few", "there")
    assert not made.has_few("select * from some")
    made.few("few", ROWS)
    assert made.has_few("select * from some")


def test_a_view_with_a_column_of_its_own_name_reads_nothing_of_itself() -> None:
    made = names()
    for _ in range(2):
        made.view("held", "select few.key as held from few")
        assert reported(made, "select held from held")[-1] == "held"
