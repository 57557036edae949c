"""Models by name, for ``--model`` and contracts: built-in ones, or a user's own as ``package.module:Class``."""

import inspect
from typing import Final

from assay.checkers.linearizability import MODELS, Model
from assay.harness.run import import_by_name
from assay.harness.run.settings import SettingsError

NEEDED: Final = ("encode", "step")


def find_model(name: str, option: str = "--model") -> Model:
    """Returns the model of this name. Raises ``SettingsError`` if there is none, or it is no usable model.

    ``option``: where it was named, for the error.
    """
    if name in MODELS:
        return MODELS[name]
    found = import_by_name.import_named(
        option, name, "model", lambda kind: kind is not Model and issubclass(kind, Model)
    )
    if isinstance(found, Model):
        raise SettingsError(f"{option}={name} is an instance; name its class, {type(found).__qualname__}")
    if not (inspect.isclass(found) and issubclass(found, Model)):
        raise SettingsError(f"{option}={name} is no subclass of assay.Model")
    missing = [method for method in NEEDED if getattr(found, method) is getattr(Model, method)]
    missing += ["name"] * (not isinstance(getattr(found, "name", None), str))
    missing += [part for part in dir(found) if getattr(getattr(found, part), "__isabstractmethod__", False)]
    if missing:
        raise SettingsError(f"{option}={name} is abstract: it lacks {', '.join(missing)}")
    return import_by_name.instantiate(option, name, found)
