"""Imports what an option names as ``package.module:Class``, from installed packages or the current folder."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final, TypeVar

from assay.harness.run.settings import SettingsError

T = TypeVar("T")

MOVED: Final = {
    f"assay.workloads.{name}_system": f"assay.workloads.systems.{name}"
    for name in ("etcd", "galera", "mariadb", "nats", "patroni", "postgresql", "rabbitmq", "redis", "redis_cluster")
}
"""Former path of a module -> its present path. Stored runs name their system by its path at that time."""


def import_named(option: str, name: str, sort: str, alike: Callable[[type], bool]) -> Any:
    """Returns the named class or object. Raises ``SettingsError``, which lists the classes that are ``alike``."""
    where, _, path = name.partition(":")
    one: object = import_module_named(f"{option}={name}", where)
    for part in path.split("."):
        if not hasattr(one, part):
            there = [each for each, value in vars(one).items() if inspect.isclass(value) and alike(value)]
            others = f"the {sort}s in it are {', '.join(there) or 'none'}"
            raise SettingsError(f"{option}={name}: {where} has no {path}; {others}")
        one = getattr(one, part)
    return one


def instantiate(option: str, name: str, kind: Callable[[], T]) -> T:
    """Creates an instance of an imported class without arguments. Raises ``SettingsError``."""
    try:
        return kind()
    except Exception as error:
        raise SettingsError(f"{option}={name} cannot be made without arguments: {_describe_failure(error)}") from error


def import_module_named(given: str, name: str) -> object:
    """Imports a module, also from the current folder, as ``python -m`` does.

    Raises ``SettingsError`` that begins with ``given``.
    """
    name = MOVED.get(name, name)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise SettingsError(f"{given}: there is no module {error.name}, neither installed nor in {here}") from error
        raise SettingsError(f"{given}: {name} cannot be imported: {_describe_failure(error)}") from error
    except (Exception, SystemExit) as error:  # the exit code of a program must not become that of this command
        raise SettingsError(f"{given}: {name} cannot be imported: {_describe_failure(error)}") from error


def _describe_failure(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
