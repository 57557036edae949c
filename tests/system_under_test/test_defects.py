"""Each historic defect is built in by the traits of exactly one layer, and the correct build has none of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest

from assay.system_under_test.client.traits import client_traits
from assay.system_under_test.controller.traits import controller_traits
from assay.system_under_test.defects import DEFECTS
from assay.system_under_test.groups.traits import group_traits
from assay.system_under_test.log.traits import log_traits
from assay.system_under_test.replication.traits import replication_traits

LAYERS: Mapping[str, Callable[[Collection[str]], object]] = {
    "log": log_traits,
    "replication": replication_traits,
    "controller": controller_traits,
    "groups": group_traits,
    "client": client_traits,
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_built_in_by_exactly_one_layer(name: str) -> None:
    assert len([layer for layer, traits in LAYERS.items() if traits([name]) != traits(())]) == 1


@pytest.mark.parametrize("layer", LAYERS)
def test_the_correct_build_has_no_defect(layer: str) -> None:
    assert LAYERS[layer](()) is LAYERS[layer](["no such defect"])
