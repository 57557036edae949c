"""Views of a check are written as one SQL script."""

from __future__ import annotations

import pytest

from assay.checkers.check import Check, View, parse_views


def test_a_script_has_views_and_tables_in_order() -> None:
    script = """
        -- Values that were sent
        create view sent as
        select key, value from effects -- also those of unknown outcome

        create table first_sent (high_cardinality, reads_other_keys) as
        select key, min(value) as value
        from sent group by key
        """
    sent, first = parse_views(script)
    assert (sent.name, sent.keep, sent.reads_other_keys) == ("sent", False, False)
    assert " ".join(sent.sql.split()) == "select key, value from effects -- also those of unknown outcome"
    assert (first.name, first.keep, first.reads_other_keys, first.high_cardinality) == ("first_sent", True, True, True)
    assert " ".join(first.sql.split()) == "select key, min(value) as value from sent group by key"


@pytest.mark.parametrize(
    "script", ["", "select 1", "select 1\ncreate view a as\nselect 1", "create view a as select 1"]
)
def test_a_query_without_a_name_is_an_error(script: str) -> None:
    with pytest.raises(ValueError, match="does not begin with `create view NAME as`"):
        parse_views(script)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="indexed"):
        parse_views("create table one (indexed) as\nselect 1")


def test_violations_are_the_last_table_under_the_name_of_the_anomaly() -> None:
    before = View("own", "select 1 as key")
    texts = {"anomaly": "Own-failure", "meaning": "it is so", "evidence": "", "examined": "", "claim": ""}
    check = Check(views=(before,), violations="select key from own", **texts)  # type: ignore[arg-type]
    first, last = check.views
    assert first is before
    assert (check.found, last.name, last.sql) == ("found_own_failure", "found_own_failure", "select key from own")
    assert last.keep
