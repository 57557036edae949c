"""Tests that what a query lacks is told apart from what is wrong with it: with more room it would have an answer."""

from __future__ import annotations

import tempfile

import duckdb
import pytest

from assay.checkers.engine import DuckDB, EngineError, EngineExhausted
from assay.checkers.engine.duck import _to_error


def test_a_query_that_memory_does_not_suffice_for_says_what_to_do() -> None:
    with DuckDB(memory="2MB") as engine, pytest.raises(EngineExhausted, match="free memory, and room in"):
        engine.rows("select max(a.range + b) from range(2000000) a join range(2000000) b(b) on a.range = b.b")
    with DuckDB() as engine, pytest.raises(EngineError) as raised:
        engine.rows("select * from nowhere")
    assert not isinstance(raised.value, EngineExhausted)


@pytest.mark.parametrize(
    ("said", "exhausted"),
    [("Could not write file: No space left on device", True), ("Could not read file: Input/output error", False)],
)
def test_a_full_disk_of_temporary_files_is_named(said: str, exhausted: bool) -> None:
    error = _to_error(duckdb.IOException(said), "select 1")
    assert isinstance(error, EngineExhausted) is exhausted
    assert (tempfile.gettempdir() in str(error)) is exhausted
