"""For all tests: pytest's own means of testing plugins, and no time limits per Hypothesis example.

Time limits per example fail on a busy machine and say nothing about the property.
"""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ("pytester",)

settings.register_profile("assay", deadline=None)
settings.load_profile("assay")
