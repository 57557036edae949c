"""The packages that a user's modules import: found through their own modules, pinned, and no others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from assay.harness.run.imported_packages import find_imported_packages

SOURCES = {
    "shop/__init__.py": "",
    "shop/test_shop.py": "import os\nimport pytest\nfrom shop import client\nfrom .deep.lazy import value\n",
    "shop/client.py": "from assay import System\nimport msgspec.json\n",
    "shop/deep/__init__.py": "",
    "shop/deep/lazy.py": "value = 1\ndef use():\n    import kazoo.client\n    import never_installed\n",
    "shop/unrelated.py": "import numpy\n",
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("shop.test_shop")
    importlib.import_module("shop.unrelated")
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def pin(name: str) -> str:
    return f"{name}=={metadata.version(name)}"


@pytest.mark.slow
@pytest.mark.usefixtures("shop")
def test_imports_are_followed_through_the_users_modules_only() -> None:
    assert find_imported_packages(["shop.test_shop"]) == (pin("kazoo"), pin("msgspec"), pin("pytest"))


@pytest.mark.slow
def test_optional_parts_that_are_installed_belong_to_their_package() -> None:
    importlib.import_module("assay.workloads.systems.postgresql")
    found = find_imported_packages(["assay.workloads.systems.postgresql"])
    assert {pin("psycopg"), pin("psycopg-binary")} <= set(found)


@pytest.mark.slow
def test_an_example_of_this_project_is_searched_like_a_users_module() -> None:
    importlib.import_module("assay.workloads.systems.nats")
    assert pin("nats-py") in find_imported_packages(["assay.workloads.systems.nats"])
