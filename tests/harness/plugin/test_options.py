"""What a test's own needs change in the options of a session."""

from dataclasses import replace

import pytest

from assay.harness.plugin.options import Options, settings_for
from assay.harness.run.settings import ONCE, Settings

OPTIONS = Options(
    settings=Settings(seed=0, operation_timeout=2.0),
    nemesis=(),
    workload_mix=(),
    seed=1,
    repeat=ONCE,
    cluster=None,
    engine="auto",
    spark_master=None,
    explore=None,
    reports="all",
    own_timeout=False,
    code_coverage="auto",
)


@pytest.mark.parametrize(("given", "needs", "has"), [(False, 5.0, 5.0), (False, 1.0, 2.0), (True, 5.0, 2.0)])
def test_operations_are_given_the_time_they_need_unless_the_user_said_less(
    given: bool, needs: float, has: float
) -> None:
    options = replace(OPTIONS, own_timeout=given)
    made = settings_for(options, cluster="sim", seed=1, nemesis=("mix",), mix=(), operation_timeout=needs)
    assert made.operation_timeout == has
