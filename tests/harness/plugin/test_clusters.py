"""Tests what a session is refused before it begins, for the kind of its cluster."""

from __future__ import annotations

import pytest

ATTACH = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-q", "--cluster=attach", "--hosts=hosts.toml")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--nemesis=kill", "--cluster=attach has no faults"),
        ("--nemesis=all", "--cluster=attach has no faults"),
        ("--set=a=b", "leave out --set, --defect and --workload-mix"),
        ("--defect=forgetful", "leave out --set, --defect and --workload-mix"),
        ("--repeat=2", "--cluster=attach runs a test once"),
        ("--explore=5", "--explore searches in the simulation"),
    ],
)
def test_a_cluster_that_runs_already_is_taken_as_it_is(toy_project: pytest.Pytester, option: str, said: str) -> None:
    toy_project.makefile(".toml", hosts='[[host]]\naddress = "127.0.0.1"\n')
    result = toy_project.runpytest_inprocess(*ATTACH, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join([*result.outlines, *result.errlines])
