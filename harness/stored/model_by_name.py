"""``--model``: one that comes along, or a user's own by ``package.module:Class``."""

import inspect
from typing import Final

from assay.checkers.linearizability import MODELS, Model
from assay.harness.run import named
from assay.harness.run.settings import SettingsError

NEEDED: Final = ("encode", "step")


def model_of(name: str) -> Model:
    """Raises ``SettingsError`` when there is none of that name, or it is no model that could be used."""
    if name in MODELS:
        return MODELS[name]
    found = named.found("--model", name, "model", lambda kind: kind is not Model and issubclass(kind, Model))
    if isinstance(found, Model):
        raise SettingsError(f"--model={name} is an instance; name its class, {type(found).__qualname__}")
    if not (inspect.isclass(found) and issubclass(found, Model)):
        raise SettingsError(f"--model={name} is no subclass of assay.Model")
    missing = [method for method in NEEDED if getattr(found, method) is getattr(Model, method)]
    missing += ["name"] * (not isinstance(getattr(found, "name", None), str))
    missing += [part for part in dir(found) if getattr(getattr(found, part), "__isabstractmethod__", False)]
    if missing:
        raise SettingsError(f"--model={name} is abstract: it lacks {', '.join(missing)}")
    return named.made("--model", name, found)
