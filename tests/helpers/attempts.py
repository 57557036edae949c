"""Plays an experiment to its end, as pytest would, and keeps what it came to."""

from __future__ import annotations

from assay.checkers.engine import Engines
from assay.harness.run.attempt import Attempt, ReportPolicy
from assay.harness.run.experiment import Experiment, find_experiment
from assay.harness.run.settings import Settings


def played(
    test: object, settings: Settings, *, reports: ReportPolicy = ReportPolicy.NEVER, engines: Engines | None = None
) -> Attempt:
    """``test``: an ``@experiment`` function, or what is behind one.

    No page is written unless asked for: drawing it takes longer than judging the run.
    """
    experiment = test if isinstance(test, Experiment) else find_experiment(test)
    assert experiment is not None, f"{test} is no experiment"
    name = f"{experiment.body.__module__}::{experiment.name}"
    attempt = Attempt(experiment, settings, name, "pytest", reports=reports, engines=engines or Engines())
    try:
        attempt.set_up()
        attempt.run()
    finally:
        attempt.tear_down()
    assert attempt.judgement is not None
    return attempt
