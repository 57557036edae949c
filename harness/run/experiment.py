"""``@experiment``: turns a function that returns a generator into a test of a system.

The decorated function stays a pure function from :class:`~assay.harness.run.settings.Settings` to a generator.
Therefore a run can be repeated, searched and shrunk. pytest collects a small test around it with one fixture,
``assay_trial``. The fixture starts the cluster, so that broken infrastructure is an error, not a failure. The test then
runs, heals, drains and judges.

    @experiment(system=Broker(), client=LogClient, contract=forbid(*LOG_ANOMALIES))
    def test_log(settings: Settings) -> Generator:
        return traffic(KEYS) | drain(KEYS, seconds=30)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import msgspec
import pytest

from assay.checkers.judging.contract import Contract
from assay.cluster.sidecars import SupportsSidecars
from assay.cluster.system import DeploymentError, NodeCounts, SupportsSettings, System
from assay.harness.core.blocking import BlockingClient
from assay.harness.core.client import Client
from assay.harness.core.generator import Generator, as_generator, mix, split_phases
from assay.harness.core.history import HistoryError
from assay.harness.run.client_nodes import SystemWithClientNodes
from assay.harness.run.declared_nodes import NodeDeclarations, read_declarations, with_counts
from assay.harness.run.full_disk import FullDiskError
from assay.harness.run.settings import Settings, SettingsError, derive_seed
from assay.harness.run.systems import SYSTEM_ATTRIBUTES
from assay.harness.run.workload_mix import MOST_DRAWN, OWN_WEIGHT, RANDOM, WorkloadMix, check_mixes, find_clash

FIXTURE: Final = "assay_trial"
ATTRIBUTE: Final = "__assay_experiment__"
CLIENT_METHODS: Final = ("open", "invoke", "close")
"""Methods of a client: all coroutines, or all plain if the client blocks."""

Body = Callable[[Settings], Generator]


class IncompleteError(TypeError):
    """A system or a client lacks a required attribute. The message names the attribute and the protocol."""


class NoGeneratorError(TypeError):
    """A test's function returned something that holds no operations."""


@dataclass(frozen=True)
class Experiment:
    """A system, how it is driven, and what it promises; see :func:`experiment`.

    ``client_options``: the ``Endpoint.options`` of its clients.
    """

    name: str
    system: System
    client: type[Client] | type[BlockingClient]
    contract: Contract
    body: Body
    client_nodes: bool = False
    mixes: tuple[WorkloadMix, ...] = ()
    operation_timeout: float = 0.0
    client_options: Mapping[str, Any] = field(default_factory=dict)
    node_counts: NodeDeclarations = field(default_factory=dict)

    def generator(self, settings: Settings) -> Generator:
        """Calls the test's function. Raises :class:`NoGeneratorError`, and the exceptions of the function."""
        returned = self.body(settings)
        if returned is None:
            raise NoGeneratorError(f"{self.name} returned None, not a generator: a `return` is missing")
        try:
            return as_generator(returned)
        except TypeError as error:
            raise NoGeneratorError(f"{self.name} returned {returned!r}: {error}") from None

    @property
    def why_not_simulated(self) -> str | None:
        """Why the experiment cannot be simulated; None if it can."""
        if getattr(self.client, "blocking", False):
            return f"{self.client.__name__} has `blocking = True`, and the simulation has no threads"
        if getattr(type(self.system), "entry", System.entry) is System.entry:
            return f"{self.system.name} has no `entry`, so it cannot be simulated"
        if isinstance(self.system, SupportsSidecars):
            return f"{self.system.name} has processes beside a node's main one (`sidecars`), and they have no `entry`"
        return None

    def with_counts(self, settings: Settings, option: str | None) -> Settings:
        """Returns the settings with the declared number of nodes of each role; ``option`` is ``--nodes``, if given."""
        return with_counts(settings, option, self.system, self.node_counts)

    def deployed_system(self, system: System | None = None) -> System:
        """Returns the system that a cluster runs: ``system``, with client nodes if the experiment uses them.

        The default is the experiment's own system. A run passes a copy with its settings and its defect."""
        system = self.system if system is None else system
        return SystemWithClientNodes(system, self.client) if self.client_nodes else system


def experiment(
    *,
    system: System,
    client: type[Client] | type[BlockingClient],
    contract: Contract,
    client_nodes: bool = False,
    model: str | None = None,
    mixes: Sequence[WorkloadMix] = (),
    operation_timeout: float = 0.0,
    node_counts: NodeCounts | None = None,
) -> Callable[[Body], Callable[..., None]]:
    """Makes a pytest test of ``body``. Command line options choose repetitions, cluster and faults.

    - ``client_nodes``: runs clients in worker processes on nodes of their own, where faults can reach them. Operations
      and results must then be JSON data.
    - ``model``: the name of a model, built-in or added by the hook ``pytest_assay_models``. The operations must also be
      linearizable by this model.
    - ``mixes``: the workload mixes that ``--workload-mix`` can add.
    - ``operation_timeout``: the seconds that its operations need, if more than usual. ``--operation-timeout`` overrides
      it.
    - ``node_counts``: possible numbers of nodes by role, one number or several with the default first. It overrides the
      system's declaration.
    """

    full_contract = contract if model is None else msgspec.structs.replace(contract, model=model)

    def decorate(body: Body) -> Callable[..., None]:
        _check_body(body)
        try:
            _check_system_and_client(system, client, needs_effects=full_contract.model is None)
        except DeploymentError as error:  # the system cannot say what it consists of
            raise IncompleteError(str(error)) from None
        decorated = Experiment(
            body.__name__, system, client, full_contract, body, client_nodes, tuple(mixes), operation_timeout,
            node_counts=_require_counts(system, node_counts),
        )  # fmt: skip
        decorated.deployed_system()  # reports an invalid combination here, not when a cluster starts

        def test(assay_trial: Any) -> None:
            try:
                failure = assay_trial.run()
            except (HistoryError, FullDiskError) as error:  # the message is enough; no traceback is needed
                raise pytest.fail.Exception(f"the run was ended: {error}", pytrace=False) from None
            if failure is not None:
                pytest.fail(failure, pytrace=False)

        test.__name__ = body.__name__
        test.__qualname__ = body.__qualname__
        test.__module__ = body.__module__
        test.__doc__ = body.__doc__
        # pytest shows the body's file and line, and takes the arguments from the signature.
        test.__dict__["__wrapped__"] = body
        test.__dict__["__signature__"] = inspect.signature(lambda assay_trial: None)
        setattr(test, ATTRIBUTE, decorated)
        return test

    return decorate


def _require_counts(system: System, node_counts: NodeCounts | None) -> NodeDeclarations:
    try:
        return read_declarations(system, node_counts)
    except ValueError as error:
        raise IncompleteError(str(error)) from None


def find_experiment(function: object) -> Experiment | None:
    """Returns the experiment behind a collected test function; None for any other test."""
    found = getattr(function, ATTRIBUTE, None)
    return found if isinstance(found, Experiment) else None


def _check_body(body: Callable[..., Any]) -> None:
    """Raises :class:`IncompleteError` unless the function takes exactly one argument, the settings."""
    signature = inspect.signature(body)
    try:
        signature.bind(None)
    except TypeError as error:
        raise IncompleteError(
            f"{body.__name__}{signature} must take the settings of a run and nothing else ({error}): "
            f"def {body.__name__}(settings: Settings) -> Generator"
        ) from None


def _check_system_and_client(system: System, client: type[Any], *, needs_effects: bool) -> None:
    """Raises :class:`IncompleteError` for mistakes that would later cause a misleading error, or a run that hangs."""
    if isinstance(system, type):
        raise IncompleteError(f"system={system.__name__} is a class: give an instance of it, {system.__name__}(...)")
    if not isinstance(client, type):
        kind = type(client).__name__
        raise IncompleteError(f"client={kind}(...) is an object: give the class, {kind}; each worker makes its own")
    missing = [
        name
        for name in SYSTEM_ATTRIBUTES
        if getattr(system, name, None) is None or _is_inherited(type(system), name, System)
    ]
    if missing:
        raise IncompleteError(
            f"the system {type(system).__name__} lacks {', '.join(missing)} (cluster/system.py, class System)"
        )
    missing = [
        name
        for name in (*CLIENT_METHODS, *(["effects"] if needs_effects else []))
        if getattr(client, name, None) is None or _is_inherited(client, name, Client, BlockingClient)
    ]
    if missing:
        raise IncompleteError(
            f"the client {client.__name__} lacks {', '.join(missing)} (harness/core/client.py, class Client)"
        )
    plain = [name for name in CLIENT_METHODS if not inspect.iscoroutinefunction(getattr(client, name))]
    if len(plain) == len(CLIENT_METHODS) and not getattr(client, "blocking", False):
        raise IncompleteError(
            f"the methods of {client.__name__} are not coroutines: write `async def`, or set `blocking = True`"
        )
    if len(plain) < len(CLIENT_METHODS) and getattr(client, "blocking", False):
        raise IncompleteError(
            f"{client.__name__} has `blocking = True`, but its methods are coroutines: remove one of the two"
        )
    if isinstance(system.roles, str) or not system.roles:
        raise IncompleteError(
            f"roles of {type(system).__name__} is {system.roles!r}: it must be a tuple, such as ('server',)"
        )


def _is_inherited(kind: type[Any], name: str, *protocols: Any) -> bool:
    """Returns whether a class does not define this name itself, but inherits it from a protocol."""
    return any(getattr(kind, name, None) is getattr(protocol, name) for protocol in protocols)


def resolve_random_mix(experiment: Experiment, settings: Settings) -> Settings:
    """Returns the settings with the workload mix ``random`` replaced by mixes drawn from the seed."""
    if settings.workload_mix != (RANDOM,):
        return settings
    chance = Random(derive_seed(settings.seed, "workload-mix"))
    count = 1 + chance.randrange(MOST_DRAWN)
    drawn: list[WorkloadMix] = []
    # Other mixes provoke anomalies that the system allows.
    promised = [one for one in experiment.mixes if one.promised]
    for one in chance.sample(promised, len(promised)):
        if len(drawn) < count and not any(find_clash(one, other) for other in drawn):
            drawn.append(one)
    return replace(settings, workload_mix=tuple(sorted(one.name for one in drawn)))


def apply_mixes(experiment: Experiment, settings: Settings) -> Experiment:
    """Returns the experiment with the mixes of these settings. Raises ``SettingsError`` for an unsuitable mix."""
    names = resolve_random_mix(experiment, settings).workload_mix
    reason = check_mixes(experiment.name, names, experiment.mixes)
    if reason is not None:
        raise SettingsError(reason)
    chosen = [one for one in experiment.mixes if one.name in names]
    if not chosen:
        return experiment
    system, contract, options = experiment.system, experiment.contract, dict(experiment.client_options)
    for one in chosen:
        chance = Random(derive_seed(settings.seed, "workload-mix", one.name))
        for name, values in one.settings.items():
            system = _apply_setting(system, one, name, chance.choice(values))
        system = one.system(system)
        options |= {name: chance.choice(values) for name, values in one.client.items()}
    for one in chosen:
        contract = one.contract(contract, system)

    def body(settings: Settings) -> Generator:
        main, *later = split_phases(experiment.generator(settings))
        shares = [share for one in chosen for share in one.adds(system, settings)]
        weights = [OWN_WEIGHT, *(weight for weight, _ in shares)]
        generator = mix(main, *(source for _, source in shares), weights=weights) if shares else main
        for one in chosen:
            closing = one.closes(system, settings)
            if closing is not None:
                generator = generator.then(as_generator(closing))
        for phase in later:
            generator = generator.then(phase)
        return generator

    return replace(experiment, system=system, contract=contract, body=body, client_options=options, mixes=())


def _apply_setting(system: System, one: WorkloadMix, name: str, value: str) -> System:
    if not isinstance(system, SupportsSettings):
        raise SettingsError(f"the mix {one.name} sets {name}, but {system.name} has no settings (SupportsSettings)")
    try:
        return system.with_setting(name, value)
    except ValueError as error:
        raise SettingsError(f"the mix {one.name}: {error}") from None
