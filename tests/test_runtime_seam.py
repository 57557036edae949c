"""The broker may import nothing of ``cluster``, so the seam to its world is written down on both sides: alike."""

from __future__ import annotations

import inspect

import pytest

from assay.cluster import runtime as of_the_world
from assay.system_under_test import runtime as of_the_broker


def members(protocol: type) -> dict[str, list[str]]:
    """Method -> its parameters; of a property, none."""
    return {
        name: list(inspect.signature(member).parameters) if inspect.isfunction(member) else []
        for name, member in vars(protocol).items()
        if not name.startswith("_")
    }


BROKER_ALONE = {"File": {"slice"}, "Storage": set(), "Runtime": set()}
"""Members that only the broker needs of its world, to send stored bytes without reading them."""


@pytest.mark.parametrize("name", list(BROKER_ALONE))
def test_both_sides_of_the_seam_have_the_same_members(name: str) -> None:
    world, broker = members(getattr(of_the_world, name)), members(getattr(of_the_broker, name))
    alone = BROKER_ALONE[name]
    assert world
    assert world == {name: parameters for name, parameters in broker.items() if name not in alone}
    assert alone <= broker.keys()
