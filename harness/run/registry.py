"""Registry of a session: its faults, checks, models and systems, as one immutable value.

:meth:`Registry.standard` has the built-in ones. pytest adds the results of the hooks in
``assay.harness.plugin.hookspecs``. A command adds the results of functions with the names of these hooks, in the
modules that ``--plugin`` names.

A stored run may name a model by its module, and importing a module executes it. Therefore a module is imported only if
the command line names it, or says that it trusts the given runs (``--trust-run``).
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.check import Family
from assay.checkers.families import FAMILIES
from assay.checkers.judging.contract import INTOLERABLE, NO_RECOVERY, Contract
from assay.checkers.linearizability import MODELS, Model
from assay.checkers.linearizability.key_result import NONLINEARIZABLE
from assay.cluster.system import System
from assay.harness.core.printable import represent, to_printable
from assay.harness.run import import_by_name
from assay.harness.run.import_by_name import find_model, split_model
from assay.harness.run.settings import SettingsError
from assay.nemesis.faults.fault import Fault
from assay.nemesis.schedule.catalogue import FaultCatalogue, FaultError

HOOKS: Final = ("pytest_assay_nemeses", "pytest_assay_checks", "pytest_assay_models", "pytest_assay_systems")


_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "pytest_assay_nemeses": (object, "faults"),  # incomplete ones are refused by their catalogue
    "pytest_assay_checks": (Family, "families of checks (assay.checkers.check.Family)"),
    "pytest_assay_models": (Model, "objects of subclasses of Model"),
    "pytest_assay_systems": (object, "systems"),
}
"""By hook, the class of the elements of its list, and their name in messages."""


class NotImportedError(SettingsError):
    """A stored run names a module that the command line neither names nor trusts."""


@dataclass(frozen=True)
class Registry:
    """The faults, checks, models and systems of a session.

    - ``families``: all families in the order of judging. ``added``: those that are not built in.
    - ``modules``: modules named by the command line; a stored run may use their models.
    - ``trusts_runs``: a stored run may use the models of any module.
    - ``sources``: the modules that added checks and models.
    """

    faults: FaultCatalogue
    families: tuple[Family, ...]
    models: Mapping[str, Model]
    systems: tuple[System, ...] = ()
    added: tuple[Family, ...] = ()
    modules: frozenset[str] = frozenset()
    trusts_runs: bool = False
    sources: tuple[str, ...] = ()

    @classmethod
    def standard(cls) -> Registry:
        """Returns the built-in faults, checks and models, and no system."""
        return cls.extended()

    @classmethod
    def extended(
        cls,
        *,
        faults: Iterable[Fault] = (),
        families: Iterable[Family] = (),
        models: Iterable[Model] = (),
        systems: Iterable[System] = (),
        modules: Iterable[str] = (),
        trusts_runs: bool = False,
        sources: Iterable[str] = (),
    ) -> Registry:
        """Returns the standard registry with additions.

        Raises ``SettingsError`` for a name that is already in use, and for an incomplete fault.
        """
        added = tuple(families)
        try:
            catalogue = FaultCatalogue.standard(*faults)
        except FaultError as error:
            raise SettingsError(str(error)) from None
        _require_distinct("family of checks", [family.name for family in (*FAMILIES, *added)])
        _require_distinct(
            "anomaly", [NO_RECOVERY, *_collect_anomalies(FAMILIES), *(name for one in added for name in one.anomalies)]
        )
        more = tuple(models)
        _require_distinct("model", [*MODELS, *(model.name for model in more)])
        return cls(
            faults=catalogue,
            families=(*FAMILIES, *added),
            models={**MODELS, **{model.name: model for model in more}},
            systems=tuple(systems),
            added=added,
            modules=frozenset(modules),
            trusts_runs=trusts_runs,
            sources=tuple(sources),
        )

    @classmethod
    def with_modules(cls, names: Collection[str], *, trusts_runs: bool = False) -> Registry:
        """Returns the standard registry with the additions of these modules: hooks as in a ``conftest.py``, or models.

        Raises ``SettingsError`` if a module cannot be imported, or adds nothing.
        """
        added: dict[str, list[Any]] = {hook: [] for hook in HOOKS}
        for name in names:
            module = import_by_name.import_module_named(f"--plugin={name}", name)
            hooks = [hook for hook in HOOKS if hasattr(module, hook)]
            classes = [value for value in vars(module).values() if inspect.isclass(value)]
            if not hooks and not any(kind is not Model and issubclass(kind, Model) for kind in classes):
                raise SettingsError(f"--plugin={name} adds nothing: it has no model, and none of {', '.join(HOOKS)}")
            for hook in hooks:
                try:
                    found = getattr(module, hook)()
                except Exception as error:
                    raise SettingsError(f"--plugin={name}: {hook} failed: {type(error).__name__}: {error}") from error
                added[hook] += require_additions(hook, found, f"--plugin={name}")
        faults, families, models, systems = added.values()
        return cls.extended(
            faults=faults, families=families, models=models, systems=systems, modules=names, trusts_runs=trusts_runs,
            sources=names,
        )  # fmt: skip

    def model(self, name: str | None, *, of_session: bool = False) -> Model | None:
        """Returns the model that a contract names, possibly as ``package.module:Class``; None for None.

        ``of_session``: the contract belongs to an experiment of this session, whose module is already imported. Raises
        ``SettingsError``, and ``NotImportedError`` for a module that only a stored run names.
        """
        if name is None:
            return None
        if name in self.models and not self.models[name].needs_arguments:
            return self.models[name]
        base, arguments = split_model(name)
        if base in MODELS:
            return find_model(name, "model")
        if base in self.models and arguments is not None:
            raise SettingsError(f"the model {base!r} of a plugin takes no arguments; name it as package.module:Class")
        if ":" in base:
            module = base.partition(":")[0]
            if not (of_session or self.trusts_runs or module in self.modules):
                raise NotImportedError("only the run names its module, so it was not imported")
            return find_model(name, "model")
        raise SettingsError(f"there is no model {name!r}; {_suggest_name(name, self.models, 'pytest_assay_models')}")

    def explain_invalid(self, contract: Contract) -> str | None:
        """Returns what is wrong with an experiment's contract in this session, and the remedy; None if it is valid."""
        try:
            self.model(contract.model, of_session=True)
        except SettingsError as missing:
            return str(missing)
        conditional = [name for one in contract.conditional for name in one.anomalies]
        for name in (*contract.tolerated, *conditional):
            if name in INTOLERABLE:
                return f"no contract can tolerate {name!r}: forbid it, or leave it out"
        known = sorted({NO_RECOVERY, NONLINEARIZABLE, *_collect_anomalies(self.families)})
        for name in (*(contract.forbidden or ()), *contract.tolerated, *conditional):
            if name not in known:
                return f"there is no anomaly {name!r}; {_suggest_name(name, known, 'pytest_assay_checks')}"
        for name in (*contract.may_stall, *(name for one in contract.conditional for name in one.faults)):
            if name not in self.faults:
                return f"there is no fault {name!r}; {_suggest_name(name, self.faults, 'pytest_assay_nemeses')}"
        return None

    def extensions(self) -> dict[str, list[str]]:
        """Returns the added families and their anomalies, as stored in ``settings.json``."""
        return {family.name: list(family.anomalies) for family in self.added}

    def find_missing_checks(self, extensions: Mapping[str, Collection[str]], load_command: str) -> dict[str, str]:
        """Returns the anomalies by which a run was judged, and for which no check is available here, with the reasons.

        ``extensions``: as stored in ``settings.json``. ``load_command``: loads the checks.
        """
        known = {family.name for family in self.families}
        return {
            anomaly: f"the checks {to_printable(name)} ({', '.join(map(to_printable, anomalies))}) that the run was "
            f"judged by are not available here: {load_command} loads them"
            for name, anomalies in extensions.items()
            if name not in known
            for anomaly in anomalies
        }


def is_module_name(text: str) -> bool:
    """Returns whether a text of a stored run is safe to print as a module name. A stored run may contain any text."""
    return all(part.isidentifier() for part in text.split("."))


def _suggest_name(name: str, known: Collection[str], hook: str) -> str:
    """Suggests a similar name, or lists all, and says how to add one."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)};"
    return f"{hint} a conftest.py adds its own by {hook} (docs/cookbook/extending.md)"


def _collect_anomalies(families: Iterable[Family]) -> set[str]:
    return {name for family in families for name in family.anomalies}


def require_additions(hook: str, found: Any, source: str) -> list[Any]:
    """Returns the list that a hook has returned. Raises ``SettingsError`` if it is no list of what the hook adds.

    ``source``: the plugin, for the error.
    """
    kind, noun = _KINDS[hook]
    if not isinstance(found, Iterable) or isinstance(found, str | bytes):
        raise SettingsError(f"{source}: {hook} returned {represent(found)}: it must return a list of {noun}")
    added = list(found)
    for one in added:
        if not isinstance(one, kind):
            raise SettingsError(f"{source}: {hook} returned a list with {represent(one)}: it must be a list of {noun}")
    return added


def _require_distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SettingsError(f"two plugins or modules define the {what} {name!r}: rename one")
        seen.add(name)
