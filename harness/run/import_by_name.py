"""Imports the object that an option names as ``package.module:Class``, such as a system or a model.

Modules come from installed packages or the current folder. A model may also be named by its built-in name, and may have
arguments: ``cas-register(0)``, ``bank.models:Account(5, "euro")``.
"""

import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from assay.checkers.linearizability import MODELS, Model, ModelError
from assay.cluster.system import SupportsCodePackages, System
from assay.harness.core.printable import count_noun
from assay.harness.run.settings import SettingsError

T = TypeVar("T")

OWN_PACKAGE: Final = "assay"
MOVED_MODULES: Final = {
    f"assay.workloads.{name}_system": f"assay.workloads.systems.{name}"
    for name in ("etcd", "galera", "mariadb", "nats", "patroni", "postgresql", "rabbitmq", "redis", "redis_cluster")
}
"""Former path of a module -> its present path. Stored runs name their system by its path at that time."""


def import_named(option: str, name: str, kind: str, is_kind: Callable[[type], bool]) -> Any:
    """Returns the object ``module:path``. If there is none, raises ``SettingsError``, which lists the classes of this
    kind in the module.
    """
    module, _, path = name.partition(":")
    found: object = import_module_named(f"{option}={name}", module)
    for part in path.split("."):
        if not hasattr(found, part):
            others = [each for each, value in vars(found).items() if inspect.isclass(value) and is_kind(value)]
            raise SettingsError(
                f"{option}={name}: {module} has no {path}; the {kind}s in it are {', '.join(others) or 'none'}"
            )
        found = getattr(found, part)
    return found


def instantiate(option: str, name: str, kind: Callable[..., T], arguments: Sequence[Any] = ()) -> T:
    """Creates an instance of an imported class. Raises ``SettingsError``."""
    try:
        return kind(*arguments)
    except Exception as error:
        how = "with these arguments" if arguments else "without arguments"
        raise SettingsError(f"{option}={name} cannot be made {how}: {_describe_failure(error)}") from error


def import_module_named(setting: str, name: str) -> object:
    """Imports a module, also from the current folder, as ``python -m`` does.

    For a module of this package, the current folder is left out. It may be a stranger's, and must not replace modules
    that this module imports. Raises ``SettingsError``; its text begins with ``setting``.
    """
    name = MOVED_MODULES.get(name, name)
    here = os.getcwd()
    if here not in sys.path and name.partition(".")[0] != OWN_PACKAGE:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(
                f"{setting}: there is no module {error.name}, neither installed nor in {here}"
            ) from error
        raise SettingsError(f"{setting}: {name} cannot be imported: {_describe_failure(error)}") from error
    except (Exception, SystemExit) as error:  # the exit code of a program must not become that of this command
        raise SettingsError(f"{setting}: {name} cannot be imported: {_describe_failure(error)}") from error


def _describe_failure(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"


def find_packages(system: System) -> tuple[str, ...]:
    """Returns the packages and modules of the system's code: as declared, else the package that defines its class."""
    if isinstance(system, SupportsCodePackages):
        return tuple(system.code_packages)
    module = type(system).__module__
    package = module.rpartition(".")[0]
    return (package if getattr(sys.modules.get(package), "__file__", None) else module,)


MODEL_METHODS: Final = ("encode", "step")


def split_model(name: str) -> tuple[str, str | None]:
    """Returns the name of a model without its arguments, and the text between the parentheses; None without any."""
    base, parenthesis, rest = name.partition("(")
    return (base.strip(), rest[:-1]) if parenthesis and rest.endswith(")") else (name, None)


def read_json_values(text: str) -> list[Any]:
    """Reads JSON values, with commas in between. Raises ``ValueError``, also for values nested too deep."""
    try:
        values: list[Any] = json.loads(f"[{text}]")
    except RecursionError:
        raise ValueError("the arguments are nested too deep") from None
    return values


def find_model(name: str, option: str = "--model", read_values: Callable[[str], list[Any]] = read_json_values) -> Model:
    """Returns the model of this name. Raises ``SettingsError`` if there is none, or if it cannot be used.

    - ``option``: the option that names it, for the error.
    - ``read_values``: reads the arguments, and raises ``ValueError`` if it cannot.
    """
    base, text = split_model(name)
    try:
        arguments = [] if text is None else read_values(text)
    except ValueError as error:
        raise SettingsError(f'{option}={name}: its arguments must be values such as 0 or "a": {error}') from error
    if base in MODELS:
        return _find_builtin(name, base, arguments, option)
    found = import_named(option, base, "model", lambda kind: kind is not Model and issubclass(kind, Model))
    if isinstance(found, Model):
        raise SettingsError(f"{option}={name} is an instance; name its class, {type(found).__qualname__}")
    if not (inspect.isclass(found) and issubclass(found, Model)):
        raise SettingsError(f"{option}={name} is not a subclass of assay.Model")
    missing = [method for method in MODEL_METHODS if getattr(found, method) is getattr(Model, method)]
    missing += ["name"] * (not isinstance(getattr(found, "name", None), str))
    missing += [part for part in dir(found) if getattr(getattr(found, part), "__isabstractmethod__", False)]
    if missing:
        raise SettingsError(f"{option}={name} is abstract: define its methods {', '.join(missing)}")
    return instantiate(option, name, found, arguments)


def _find_builtin(name: str, base: str, arguments: Sequence[Any], option: str) -> Model:
    model = MODELS[base]
    if not arguments:
        if model.needs_arguments:
            raise SettingsError(f"{option}={name} needs an argument, such as '{base}({model.needs_arguments})'")
        return model
    kind: Callable[..., Model] = type(model)
    try:
        inspect.signature(kind).bind(*arguments)
    except TypeError as error:
        raise SettingsError(
            f"{option}={name}: {base} does not take {count_noun(len(arguments), 'argument')}"
        ) from error
    try:
        return kind(*arguments)
    except ModelError as error:
        raise SettingsError(f"{option}={name}: {error}") from error
