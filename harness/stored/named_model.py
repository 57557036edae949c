"""``--model``: one that comes along, or a user's own by ``package.module:Class``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from typing import Final

from assay.checkers.linearizability import MODELS, Model
from assay.harness.run.settings import SettingsError

NEEDED: Final = ("encode", "step")


def model_of(name: str) -> Model:
    """Raises ``SettingsError`` when there is none of that name, or it is no model that could be used."""
    if name in MODELS:
        return MODELS[name]
    module, _, path = name.partition(":")
    found: object = _module(name, module)
    for part in path.split("."):
        if not hasattr(found, part):
            there = [one for one, kind in vars(found).items() if inspect.isclass(kind) and issubclass(kind, Model)]
            others = f"; the models in it are {', '.join(one for one in there if one != 'Model') or 'none'}"
            raise SettingsError(f"--model={name}: {module} has no {path}{others}")
        found = getattr(found, part)
    if isinstance(found, Model):
        raise SettingsError(f"--model={name} is an instance; name its class, {type(found).__qualname__}")
    if not (inspect.isclass(found) and issubclass(found, Model)):
        raise SettingsError(f"--model={name} is no subclass of assay.checkers.linearizability.Model")
    missing = [method for method in NEEDED if getattr(found, method) is getattr(Model, method)]
    missing += ["name"] * (not isinstance(getattr(found, "name", None), str))
    missing += [part for part in dir(found) if getattr(getattr(found, part), "__isabstractmethod__", False)]
    if missing:
        raise SettingsError(f"--model={name} is abstract: it lacks {', '.join(missing)}")
    try:
        return found()
    except Exception as error:
        raise SettingsError(f"--model={name} cannot be made without arguments: {_told(error)}") from error


def _module(name: str, module: str) -> object:
    """Also from the current folder, as ``python -m`` does."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise SettingsError(
                f"--model={name}: there is no module {error.name}, neither installed nor in {here}"
            ) from error
        raise SettingsError(f"--model={name}: {module} cannot be imported: {_told(error)}") from error
    except Exception as error:
        raise SettingsError(f"--model={name}: {module} cannot be imported: {_told(error)}") from error


def _told(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
