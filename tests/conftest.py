"""For all tests: pytest's own means of testing plugins."""

from __future__ import annotations

pytest_plugins = ("pytester",)
