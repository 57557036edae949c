"""How many examples a property test tries: all of them every night, a share by day, twenty times as many in `deep`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

ALL: Final = 100
"""Examples of the night's profile where a test does not say how many."""


def some_of(examples: int) -> int:
    """Scales the night's number of examples to the profile that is loaded. The result is at least six, or all."""
    return max(min(6, examples), examples * settings.default.max_examples // ALL)
