"""Each historic defect is built in by the traits of exactly one layer, and the correct build has none of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest

from assay.system_under_test.client.traits import select_client_traits
from assay.system_under_test.controller.traits import select_controller_traits
from assay.system_under_test.defects import DEFECTS
from assay.system_under_test.groups.traits import select_group_traits
from assay.system_under_test.log.traits import select_log_traits
from assay.system_under_test.replication.traits import select_replication_traits

LAYERS: Mapping[str, Callable[[Collection[str]], object]] = {
    "log": select_log_traits,
    "replication": select_replication_traits,
    "controller": select_controller_traits,
    "groups": select_group_traits,
    "client": select_client_traits,
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_built_in_by_exactly_one_layer(name: str) -> None:
    assert len([layer for layer, traits in LAYERS.items() if traits([name]) != traits(())]) == 1


@pytest.mark.parametrize("layer", LAYERS)
def test_the_correct_build_has_no_defect(layer: str) -> None:
    assert LAYERS[layer](()) is LAYERS[layer](["no such defect"])
