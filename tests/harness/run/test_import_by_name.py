"""A system or model is found by the name that an option or a stored run gives."""

from importlib.util import find_spec

import pytest

from assay.harness.run import import_by_name


@pytest.mark.parametrize("former", sorted(import_by_name.MOVED_MODULES))
def test_a_module_is_found_by_its_former_path(former: str) -> None:
    today = import_by_name.MOVED_MODULES[former]
    assert find_spec(today) is not None
    assert vars(import_by_name.import_module_named("--system=x", former))["__name__"] == today
