from __future__ import annotations

import asyncio

import pytest

from assay.cluster.node import NodeError
from assay.nemesis.engine.guarded_call import run_guarded

from helpers.nemesis_fakes import run


def outcome(error: BaseException | None, seconds: float = 0.0) -> str | None:
    async def action() -> None:
        await asyncio.sleep(seconds)
        if error is not None:
            raise error

    return run(run_guarded(5.0, action()))


def test_success_is_none() -> None:
    assert outcome(None) is None


def test_a_foreseen_error_is_its_message() -> None:
    assert outcome(NodeError("n1: kill refused")) == "n1: kill refused"


def test_any_other_error_is_reported_with_its_traceback() -> None:
    recorded = outcome(ZeroDivisionError("a bug"))
    assert recorded is not None
    assert "ZeroDivisionError: a bug" in recorded
    assert "in action" in recorded


def test_the_deadline_is_told_apart_from_a_time_out_inside() -> None:
    assert outcome(None, 6.0) == "it did not end within 5 s"
    assert "TimeoutError: inside" in (outcome(TimeoutError("inside")) or "")


def test_cancellation_goes_through() -> None:
    with pytest.raises(asyncio.CancelledError):
        outcome(asyncio.CancelledError())
