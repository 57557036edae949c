"""Everything that a session can work with: faults, checks, models, systems. One value, made once and handed down.

What comes along is :meth:`Registry.standard`. pytest adds what the hooks of ``assay.harness.plugin.hookspecs`` return;
a command adds what a module named by ``--plugin`` has under the names of these hooks.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.checkers.check import Family
from assay.checkers.contract import NO_RECOVERY, Contract
from assay.checkers.families import FAMILIES
from assay.checkers.linearizability import MODELS, Model
from assay.checkers.linearizability.answer import NONLINEARIZABLE
from assay.cluster.system import System
from assay.harness.run import named
from assay.harness.run.model_by_name import model_of
from assay.harness.run.settings import SettingsError
from assay.nemesis.catalogue import Catalogue, FaultError
from assay.nemesis.fault import Fault

HOOKS: Final = ("pytest_assay_nemeses", "pytest_assay_checks", "pytest_assay_models", "pytest_assay_systems")


@dataclass(frozen=True)
class Registry:
    """``families``: in the order in which they are judged. ``added``: the families that do not come along."""

    faults: Catalogue
    families: tuple[Family, ...]
    models: Mapping[str, Model]
    systems: tuple[System, ...] = ()
    added: tuple[Family, ...] = ()

    @classmethod
    def standard(cls) -> Registry:
        """The faults, checks and models that come along, and no system."""
        return cls.extended()

    @classmethod
    def extended(
        cls,
        *,
        faults: Iterable[Fault] = (),
        families: Iterable[Family] = (),
        models: Iterable[Model] = (),
        systems: Iterable[System] = (),
    ) -> Registry:
        """The standard one, and more.

        Raises ``SettingsError`` for a name that is there already, and for a fault that lacks something.
        """
        added = tuple(families)
        try:
            catalogue = Catalogue.standard(*faults)
        except FaultError as error:
            raise SettingsError(str(error)) from None
        _distinct("family of checks", [family.name for family in (*FAMILIES, *added)])
        _distinct("anomaly", [NO_RECOVERY, *_anomalies(FAMILIES), *(name for one in added for name in one.anomalies)])
        more = tuple(models)
        _distinct("model", [*MODELS, *(model.name for model in more)])
        return cls(
            catalogue, (*FAMILIES, *added), {**MODELS, **{model.name: model for model in more}}, tuple(systems), added
        )

    @classmethod
    def with_modules(cls, names: Iterable[str]) -> Registry:
        """The standard one, and what these modules add: they define hooks of pytest's, as a ``conftest.py`` does.

        Raises ``SettingsError`` when a module cannot be imported, or adds nothing.
        """
        added: dict[str, list[Any]] = {hook: [] for hook in HOOKS}
        for name in names:
            module = named.module(f"--plugin={name}", name)
            hooks = [hook for hook in HOOKS if hasattr(module, hook)]
            if not hooks:
                raise SettingsError(f"--plugin={name} adds nothing: it has none of {', '.join(HOOKS)}")
            for hook in hooks:
                added[hook] += getattr(module, hook)()
        faults, families, models, systems = added.values()
        return cls.extended(faults=faults, families=families, models=models, systems=systems)

    def model(self, name: str | None) -> Model | None:
        """The one that a contract names, also as ``package.module:Class``. Raises ``SettingsError``; None of None."""
        if name is None or name in self.models:
            return None if name is None else self.models[name]
        if ":" in name:
            return model_of(name, "model")
        raise SettingsError(f"no model {name!r}; {_instead(name, self.models, 'pytest_assay_models')}")

    def lacking(self, contract: Contract) -> str | None:
        """What this contract of an experiment names and the session has not, with the remedy; or None."""
        try:
            self.model(contract.model)
        except SettingsError as missing:
            return str(missing)
        known = sorted({NO_RECOVERY, NONLINEARIZABLE, *_anomalies(self.families)})
        conditional = (name for one in contract.conditional for name in one.anomalies)
        for name in (*(contract.forbidden or ()), *contract.tolerated, *conditional):
            if name not in known:
                return f"no anomaly {name!r}; {_instead(name, known, 'pytest_assay_checks')}"
        for name in (*contract.may_stall, *(name for one in contract.conditional for name in one.faults)):
            if name not in self.faults:
                return f"no fault {name!r}; {_instead(name, self.faults, 'pytest_assay_nemeses')}"
        return None

    def extensions(self) -> dict[str, list[str]]:
        """The added families and their anomalies, as ``settings.json`` keeps them."""
        return {family.name: list(family.anomalies) for family in self.added}

    def lacks(self, extensions: Mapping[str, Iterable[str]]) -> list[str]:
        """Why a run that was judged with these extensions cannot be judged whole with this registry."""
        known = {family.name for family in self.families}
        return [
            f"the checks {name} ({', '.join(anomalies)}) that the run was judged by are not available here: "
            "name the module that adds them, --plugin=MODULE"
            for name, anomalies in extensions.items()
            if name not in known
        ]


def _instead(name: str, known: Collection[str], hook: str) -> str:
    """The name that may be meant, else all there are; and how one is added."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)};"
    return f"{hint} a conftest.py adds its own by {hook} (docs/extending.md)"


def _anomalies(families: Iterable[Family]) -> set[str]:
    return {name for family in families for name in family.anomalies}


def _distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SettingsError(f"there are two of {what} {name!r}: rename one")
        seen.add(name)
