"""A run keeps the beginning and the end of a large log, and says what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cluster import log_excerpt
from assay.cluster.log_excerpt import Omission, cut_log, plan_omission, read_omission


@pytest.fixture(scope="module", autouse=True)
def small() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_excerpt, "HEAD_BYTES", 100)
        patch.setattr(log_excerpt, "TAIL_BYTES", 300)
        patch.setattr(log_excerpt, "MAX_LOG_BYTES", 400)
        yield


@given(size=st.integers(0, 2000))
def test_each_kept_byte_is_where_the_mapping_of_offsets_says(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    kept = cut_log(data)
    left_out = plan_omission(size) or Omission(size, 0)
    assert len(kept) <= 400 + len(left_out.line)
    for offset in range(1, size + 1):
        place = left_out.to_excerpt_offset(offset)
        if place is None:
            assert left_out.begin < offset <= left_out.end
        else:
            assert kept[place - 1] == data[offset - 1]
    assert sum(left_out.to_excerpt_offset(offset) is not None for offset in range(1, size + 1)) == min(size, 400)


def test_a_stored_log_says_what_it_leaves_out(tmp_path: Path) -> None:
    stored, data = tmp_path / "process.log", b"x" * 1000
    stored.write_bytes(cut_log(data))
    assert b"\nassay: 600 bytes were left out here, from byte 100 on" in stored.read_bytes()
    assert read_omission(stored) == Omission(100, 600)
    stored.write_bytes(b"x" * 400)
    assert read_omission(stored) is None
    stored.write_bytes(b"x" * 500)
    assert read_omission(stored) is None, "it is a log of an older run, which kept all of it"
    assert read_omission(tmp_path / "missing") is None
