"""A step that takes long has a line at once, and further ones until it ends."""

from __future__ import annotations

import asyncio

import pytest

from assay.cluster import slow_steps


def test_a_slow_step_is_shown_again_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step ends when three lines have come, so it would last for ever without them."""
    monkeypatch.setattr(slow_steps, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(slow_steps, "AGAIN_SECONDS", 0.001)

    async def wait_for_lines() -> list[str]:
        shown: list[str] = []
        enough = asyncio.Event()

        def show(line: str) -> None:
            shown.append(line)
            if len(shown) == 3:
                enough.set()

        with slow_steps.note_if_slow(show, "connecting to n1"):
            await enough.wait()
        ended = len(shown)
        await asyncio.sleep(0.01)
        assert len(shown) == ended
        return shown

    assert asyncio.run(wait_for_lines())[:3] == ["connecting to n1 ...", *["connecting to n1: 0 s so far"] * 2]


@pytest.mark.parametrize(("is_slow", "lines"), [(False, []), (True, ["connecting to n1 ..."])])
def test_a_step_that_ends_soon_has_a_line_only_if_it_is_known_to_be_slow(is_slow: bool, lines: list[str]) -> None:
    async def end_soon() -> list[str]:
        shown: list[str] = []
        with slow_steps.note_if_slow(shown.append, "connecting to n1", is_slow=is_slow):
            await asyncio.sleep(0)
        return shown

    assert asyncio.run(end_soon()) == lines
