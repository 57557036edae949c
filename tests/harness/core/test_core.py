"""The package's front: everything that it promises is there, and a client's worker needs no Arrow."""

from __future__ import annotations

import subprocess
import sys

import pytest

import assay.harness.core


def test_every_export_exists_and_is_listed_once() -> None:
    assert len(set(assay.harness.core.__all__)) == len(assay.harness.core.__all__)
    for name in assay.harness.core.__all__:
        assert getattr(assay.harness.core, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        assay.harness.core.nonsense  # noqa: B018


def test_the_core_needs_no_arrow() -> None:
    script = "import sys, assay.harness.core\nassert 'pyarrow' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", script], check=True)
