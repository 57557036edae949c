"""No verb of the ``assay`` command is forgotten where verbs are listed."""

from __future__ import annotations

import importlib
import pkgutil
import re

from assay.harness import cli
from assay.harness.cli.main import VERBS


def test_every_module_with_a_parser_is_a_verb_and_on_the_map() -> None:
    names = {module.name for module in pkgutil.iter_modules(cli.__path__)}
    modules = {name: importlib.import_module(f"assay.harness.cli.{name}") for name in names}
    verbs = {name for name, module in modules.items() if hasattr(module, "add")}
    assert {module.__name__.rpartition(".")[2] for module in VERBS} == verbs
    assert set(re.findall(r"``(\w+)``", cli.__doc__ or "")) >= names
