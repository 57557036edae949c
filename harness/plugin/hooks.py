"""The pytest plugin: options, one test per combination of faults and repetition, and the fixture that runs a trial.

Every pytest session of an environment loads an installed plugin, so this module must cost next to nothing. At the top
it imports only pytest and the options. Functions import the modules for clusters, histories and reports when they need
them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest

from assay.harness.core.printable import to_encodable
from assay.harness.plugin import (
    clusters,
    hookspecs,
    module_import,
    other_plugins,
    pass_remarks,
    repeat_rounds,
    signals,
    stored_runs,
    usage_errors,
)
from assay.harness.plugin.options import Options, add_options, make_settings, read_options
from assay.harness.plugin.usage_errors import make_usage_error, refuse_session
from assay.harness.run.command_line import DEFAULT_TRIGGER, make_repeat_command
from assay.harness.run.interrupt import Interrupt, StopSignals
from assay.harness.run.settings import DOCKER, ONCE, SIM, SettingsError, list_required_faults

if TYPE_CHECKING:
    from assay.harness.run.experiment import Experiment
    from assay.harness.run.registry import Registry
    from assay.harness.run.settings import Settings
    from assay.nemesis.schedule.catalogue import FaultCatalogue

FIXTURE: Final = "assay_trial"
SKIP_MARK: Final = "assay_not_applicable"
OPTIONS: Final = pytest.StashKey[Options]()
SESSION: Final = pytest.StashKey["SessionSetup"]()
REGISTRY: Final = pytest.StashKey["Registry"]()
SIGNALS: Final = pytest.StashKey[StopSignals]()


@dataclass(frozen=True)
class SessionSetup:
    """State that the experiments of one pytest session share. ``announcement``: its cluster, for the header."""

    seed: int
    cluster: str
    announcement: str


@dataclass(frozen=True)
class Parameter:
    """A test: its faults, its workload mixes, the number of this repetition (from 1), and the number of repetitions."""

    nemesis: tuple[str, ...]
    workload_mix: tuple[str, ...]
    number: int
    repetitions: int

    @property
    def id(self) -> str:
        names = "+".join(["+".join(self.nemesis) or "none", *self.workload_mix])
        return names if self.repetitions == 1 else f"{names}-{self.number}"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    add_options(parser)
    pluginmanager.register(module_import, "assay-own-modules")
    pluginmanager.register(pass_remarks, "assay-remarks")
    pluginmanager.register(stored_runs, "assay-stored-runs")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if not config.getoption("--nemesis-list"):
        return None
    from assay.harness.run.faults import format_fault_list
    from assay.harness.run.systems import find_system

    try:
        registry = get_registry(config)
    except SettingsError as error:
        raise pytest.UsageError(str(error)) from None
    print(format_fault_list(registry.faults, [find_system(), *registry.systems]))
    return 0


def pytest_configure(config: pytest.Config) -> None:
    usage_errors.register(config)
    config.stash[SIGNALS] = signals.register(config, is_experiment)
    other_plugins.register(config, config.stash[SIGNALS], is_experiment)
    config.addinivalue_line("markers", f"{SKIP_MARK}(reason): set by assay on a test that its options rule out")
    try:
        options = read_options(config)
        if any(call.get_hookimpls() for call in _list_extension_hooks(config)):
            get_registry(config)  # early, so that an error in it ends the session with a usage error
        if (
            options.nemesis
            or options.settings.nemesis_target
            or options.settings.replay
            or options.settings.nemesis_trigger != DEFAULT_TRIGGER
        ):
            _check_faults(options, get_registry(config).faults)
        if options.explore is not None:
            _check_search(options)
        if not config.option.collectonly:
            clusters.check_temporary_folder(options.settings.store, config.option.basetemp)
            clusters.check_cluster(options)
    except SettingsError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[OPTIONS] = options
    repeat_rounds.register(config, options.repeat, _get_repetition_number)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if FIXTURE not in metafunc.fixturenames:
        return
    from assay.harness.run.experiment import find_experiment

    experiment = find_experiment(metafunc.function)
    if experiment is None:
        name = metafunc.function.__name__
        raise pytest.Collector.CollectError(f"{name} takes {FIXTURE}, but has no decorator @experiment")
    options = metafunc.config.stash[OPTIONS]
    registry = get_registry(metafunc.config)
    if options.explore is not None:
        names = tuple(sorted(list_required_faults(options.nemesis)))
        parameters = [
            pytest.param(
                Parameter(names, mix, 1, 1),
                id="+".join(("explore", *mix)),
                marks=_make_skip_marks(experiment, options, (), mix, registry.faults),
            )
            for mix in _list_mix_combinations(experiment, options)
        ]
        metafunc.parametrize(FIXTURE, parameters, indirect=True)
        return
    parameters, repetitions = [], repeat_rounds.count_rounds(options.repeat)
    faults, mixes = _list_fault_combinations(options, registry.faults), _list_mix_combinations(experiment, options)
    if repeat_rounds.add_collected_tests(metafunc.config, len(faults) * len(mixes) * repetitions) is not None:
        repetitions = 1  # the session ends after collection
    for nemesis, mix in product(faults, mixes):
        marks = _make_skip_marks(experiment, options, nemesis, mix, registry.faults)
        for number in range(1, repetitions + 1):
            parameter = Parameter(nemesis, mix, number, repetitions)
            parameters.append(pytest.param(parameter, id=parameter.id, marks=marks))
    metafunc.parametrize(FIXTURE, parameters, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    experiments = [item for item in items if is_experiment(item)]
    reasons = [mark.args[0] for item in experiments for mark in item.iter_markers(SKIP_MARK)]
    if experiments and len(reasons) == len(experiments):
        raise make_usage_error(config, f"no test remains: {reasons[0]}")
    if (
        reason := repeat_rounds.add_collected_tests(config) or other_plugins.check_reruns(config, experiments)
    ) is not None:
        raise make_usage_error(config, reason)
    if odd := [item.nodeid for item in experiments if to_encodable(item.nodeid) != item.nodeid]:
        raise make_usage_error(
            config,
            f"{to_encodable(odd[0])}: the name of its file or folder is not {sys.getfilesystemencoding()}, the "
            "encoding of this session: rename it, or set a UTF-8 locale",
        )
    if experiments:
        options, runs = config.stash[OPTIONS], not config.option.collectonly
        if runs and (reason := clusters.check_writable(options.settings.store)) is not None:
            raise make_usage_error(config, reason)
        config.stash[SESSION] = _set_up_session(config, options)
        if runs and not config.getoption("--workload-mix-list"):
            _refuse_faults(config, experiments)


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    session = config.stash.get(SESSION, None)
    lines = [] if session is None else [f"assay: {session.announcement}, seed {session.seed}"]
    if config.getoption("--workload-mix-list"):
        from assay.harness.run.experiment import find_experiment
        from assay.harness.run.workload_mix import format_mix_list

        functions = {getattr(item, "originalname", item.name): getattr(item, "function", None) for item in items}
        experiments = {name: find_experiment(function) for name, function in functions.items()}
        lines += format_mix_list({name: one.mixes for name, one in experiments.items() if one is not None})
    return lines


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs nothing in a session that lists mixes."""
    return True if session.config.getoption("--workload-mix-list") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Removes the log sections of a trial, because a failed trial has a text of its own."""
    report: Any = yield
    if is_experiment(item):
        report.sections.clear()
    return report


@pytest.fixture(scope="session")
def assay_engines(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Provides the engines that judge the runs of this session. Spark, if requested, starts once."""
    from assay.checkers.engine import Engines, EngineUnavailable
    from assay.checkers.engine.duck import RUN_MEMORY

    options = request.config.stash[OPTIONS]
    with Engines(options.engine, spark_master=options.spark_master, memory=RUN_MEMORY) as engines:
        try:
            engines.check()
        except EngineUnavailable as error:
            refuse_session(request.config, str(error))
        yield engines


@pytest.fixture
def assay_trial(request: pytest.FixtureRequest, assay_engines: Any) -> Iterator[Any]:
    """Provides an attempt whose cluster and system have been started; ``run()`` does the rest."""
    from assay.harness.plugin.terminal import make_progress
    from assay.harness.run.attempt import (
        Attempt,
        FaultUnavailableError,
        HistoryPolicy,
        InfrastructureError,
        ReportPolicy,
    )
    from assay.harness.run.experiment import NoGeneratorError, apply_mixes, find_experiment, resolve_random_mix
    from assay.harness.run.full_disk import FullDiskError
    from assay.harness.run.systems import draw_configuration
    from assay.nemesis.schedule.catalogue import MIX

    function = getattr(request.node, "function", None)
    experiment: Experiment | None = find_experiment(function)
    assert experiment is not None, "pytest_generate_tests rejects other tests"
    if (reason := get_registry(request.config).explain_invalid(experiment.contract)) is not None:
        pytest.fail(f"{experiment.name}: {reason}", pytrace=False)
    options = request.config.stash[OPTIONS]
    settings = _make_settings_of_test(request.config, request.param, experiment)
    if options.explore is None:
        settings = resolve_random_mix(experiment, settings)
        if settings.nemesis == (MIX,):  # the mix of faults
            drawn = draw_configuration(
                apply_mixes(experiment, settings).deployed_system(), settings.configuration, settings.seed
            )
            settings = replace(settings, configuration=drawn)
    if settings.cluster == SIM and (reason := experiment.why_not_simulated) is not None:
        pytest.skip(f"{reason} (--cluster=docker runs it)")
    base = request.node.nodeid.partition("[")[0]
    if options.explore is not None:
        from assay.harness.search.exploration import Exploration

        exploration = Exploration(
            experiment=experiment,
            settings=settings,
            budget=options.explore,
            code_coverage=options.code_coverage,
            test=request.node.nodeid,
            command=lambda again: make_repeat_command(base, again, experiment.operation_timeout),
            progress=make_progress(request.config),
            engines=assay_engines,
            interrupt=Interrupt(request.config.stash[SIGNALS]),
            registry=get_registry(request.config),
        )
        try:
            yield exploration
        finally:
            exploration.tear_down()
            if exploration.passed_examples is not None:
                pass_remarks.keep_search(request.node, exploration.passed_examples)
            if exploration.interrupted:
                request.session.shouldstop = "interrupted"
        return
    attempt = Attempt(
        experiment=experiment,
        settings=settings,
        test=request.node.nodeid,
        command=make_repeat_command(base, settings, experiment.operation_timeout),
        progress=make_progress(request.config),
        interrupt=Interrupt(request.config.stash[SIGNALS]),
        reports=ReportPolicy(options.reports),
        histories=HistoryPolicy(options.history),
        engines=assay_engines,
        registry=get_registry(request.config),
    )
    try:
        try:
            attempt.set_up()
        except FaultUnavailableError as error:
            if list_required_faults(options.nemesis) & set(settings.nemesis):
                refuse_session(request.config, str(error))
            pytest.skip(str(error))
        except NoGeneratorError as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        except (InfrastructureError, FullDiskError) as error:
            text = f"{error}\nseed: {settings.seed}\nrepeat: {attempt.command}"
            raise pytest.fail.Exception(text, pytrace=False) from None
        yield attempt
    finally:
        pass_remarks.keep_remarks(request.node, attempt.remarks)
        pass_remarks.keep_counts(request.node, attempt.operation_counts)
        if attempt.pass_summary is not None:
            pass_remarks.keep_pass(request.node, *attempt.pass_summary)
        if attempt.removal is not None:
            pass_remarks.keep_removal(request.node, *attempt.removal)
        if attempt.interrupted:  # even if the cluster cannot be removed
            request.session.shouldstop = signals.STOP_REASON
        attempt.tear_down()


def is_experiment(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ())


def get_registry(config: pytest.Config) -> Registry:
    """Returns the session's registry, and creates it on first use. Raises ``SettingsError``."""
    found = config.stash.get(REGISTRY, None)
    if found is None:
        from assay.harness.run.registry import Registry

        faults, families, models, systems = map(_collect_additions, _list_extension_hooks(config))
        found = Registry.extended(
            faults=faults, families=families, models=models, systems=systems, sources=_list_sources(config)
        )
        config.stash[REGISTRY] = found
    return found


def _collect_additions(call: Any) -> list[Any]:
    """Calls a hook and returns the additions of all plugins. Raises ``SettingsError``, which names the plugin."""
    from assay.harness.run.registry import require_additions

    results = call()
    try:
        return [one for found in results for one in require_additions(call.name, found, "a plugin")]
    except SettingsError:
        for impl in call.get_hookimpls():  # the results do not say whose they are
            if not (impl.wrapper or impl.hookwrapper) and (found := impl.function()) is not None:
                require_additions(call.name, found, impl.plugin_name)
        raise


def _list_sources(config: pytest.Config) -> list[str]:
    """Returns the modules whose hooks add checks or models. They are stored with a run, for later judgements."""
    calls = (config.hook.pytest_assay_checks, config.hook.pytest_assay_models)
    return sorted({impl.function.__module__ for call in calls for impl in call.get_hookimpls()})


def _list_extension_hooks(config: pytest.Config) -> tuple[Any, ...]:
    """Returns the callable hooks of ``hookspecs``."""
    hook = config.hook
    return hook.pytest_assay_nemeses, hook.pytest_assay_checks, hook.pytest_assay_models, hook.pytest_assay_systems


def _make_settings_of_test(config: pytest.Config, parameter: Parameter, experiment: Experiment) -> Settings:
    session = config.stash[SESSION]
    return make_settings(
        config.stash[OPTIONS],
        cluster=session.cluster,
        seed=session.seed,
        nemesis=parameter.nemesis,
        workload_mix=parameter.workload_mix,
        number=parameter.number,
        test=experiment.name,
        operation_timeout=experiment.operation_timeout,
        set_counts=experiment.with_counts,
    )


def _set_up_session(config: pytest.Config, options: Options) -> SessionSetup:
    from assay.harness.plugin.terminal import make_announcer

    announce = make_announcer(config)
    uses_docker = options.cluster == DOCKER or (options.cluster is None and options.explore is None)
    engine = clusters.describe_far_engine() if uses_docker else None
    if engine is not None:
        announce(f"asking the Docker engine {engine} ...")
    # Drawn before anything is simulated. All later randomness derives from this seed.
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    if options.cluster is None and options.explore is not None:
        cluster, announcement = SIM, "cluster sim (--explore)"
    elif options.cluster is None:
        from assay.harness.run.environments import choose_default_cluster

        try:
            cluster, reason = choose_default_cluster()
        except SettingsError as error:
            raise make_usage_error(config, str(error)) from error
        announcement = f"cluster {cluster} ({reason})"
    else:
        cluster = options.cluster
        announcement = f"cluster {cluster}"
    if cluster == SIM and options.settings.watch:
        raise make_usage_error(
            config,
            "--watch and --fail-fast are not for the simulation: a simulated run takes seconds and is judged at the "
            "end; leave them out, or use --cluster=docker",
        )
    if engine is not None:
        announce(f"looking for leftovers of dead sessions on {engine} ...")
    return SessionSetup(seed, cluster, announcement + clusters.sweep_leftovers(cluster))


def _refuse_faults(config: pytest.Config, experiments: Sequence[pytest.Item]) -> None:
    """Skips tests whose faults the cluster cannot inject. Raises ``UsageError`` if the user has named such a fault."""
    from assay.harness.plugin.terminal import make_announcer
    from assay.harness.run.experiment import find_experiment

    tests = {}
    for item in experiments:
        experiment, parameter = find_experiment(getattr(item, "function", None)), _get_parameter(item)
        if experiment is not None and parameter is not None and item.get_closest_marker(SKIP_MARK) is None:
            tests[item] = (parameter.nemesis, experiment.system)
    refusals = clusters.find_refusals(
        config.stash[SESSION].cluster, tests, get_registry(config).faults, make_announcer(config)
    )
    required = list_required_faults(config.stash[OPTIONS].nemesis)
    reasons = {name: reason for found in refusals.values() for name, reason in found.items()}
    if named := [reasons[name] for name in sorted(reasons) if name in required]:
        raise make_usage_error(config, *named)
    for item, found in refusals.items():
        item.add_marker(pytest.mark.skip(reason=found[min(found)]))


def _make_skip_marks(
    experiment: Experiment, options: Options, nemesis: tuple[str, ...], mix: tuple[str, ...], faults: FaultCatalogue
) -> list[pytest.MarkDecorator]:
    """Returns the skip marks of a test that its options rule out; empty if it can run."""
    from assay.harness.run.declared_nodes import check_node_counts
    from assay.harness.run.experiment import apply_mixes
    from assay.harness.run.faults import explain_inapplicable, explain_invalid_roles
    from assay.harness.run.workload_mix import check_mixes

    sample = make_settings(
        options,
        cluster=SIM,
        seed=options.seed or 0,
        nemesis=nemesis,
        workload_mix=mix,
        set_counts=experiment.with_counts,
    )
    reason = (
        check_mixes(experiment.name, mix, experiment.mixes)
        or explain_invalid_roles(experiment.system, sample)
        or check_node_counts(sample, options.nodes, experiment.system, experiment.node_counts)
        or explain_inapplicable(apply_mixes(experiment, sample).deployed_system(), sample, faults)
    )
    return [] if reason is None else [getattr(pytest.mark, SKIP_MARK)(reason), pytest.mark.skip(reason=reason)]


def _list_fault_combinations(options: Options, faults: FaultCatalogue) -> tuple[tuple[str, ...], ...]:
    from assay.harness.run.faults import list_fault_combinations, list_fault_names, read_replay

    if options.settings.replay is not None:
        return (list_fault_names(read_replay(options.settings.replay, faults)),)
    return list_fault_combinations(options.nemesis, faults)


def _list_mix_combinations(experiment: Experiment, options: Options) -> tuple[tuple[str, ...], ...]:
    from assay.harness.run.workload_mix import list_mix_combinations

    return list_mix_combinations(options.workload_mix, experiment.mixes)


def _check_faults(options: Options, faults: FaultCatalogue) -> None:
    from assay.harness.run.faults import check_target, check_trigger
    from assay.nemesis.schedule.catalogue import MIX

    if options.settings.replay is not None and (options.nemesis or options.settings.nemesis_target):
        raise SettingsError("--replay brings its own faults and targets; leave out --nemesis and --nemesis-target")
    settings = options.settings
    if (MIX,) in _list_fault_combinations(options, faults) and (
        settings.nemesis_target or settings.nemesis_trigger != DEFAULT_TRIGGER
    ):
        raise SettingsError("--nemesis=mix draws targets and times; leave out --nemesis-target and --nemesis-trigger")
    check_target(settings.nemesis_target)
    check_trigger(settings.nemesis_trigger)


def _check_search(options: Options) -> None:
    if options.settings.replay is not None or options.settings.nemesis_target or options.repeat != ONCE:
        raise SettingsError("--explore draws its own schedules; leave out --replay, --nemesis-target and --repeat")
    if options.cluster not in (None, SIM):
        raise SettingsError(
            "--explore searches in the simulation; what it finds is confirmed by --cluster=docker --replay"
        )


def _get_parameter(item: pytest.Item) -> Parameter | None:
    """Returns the parameter of an experiment's test; None if the item is no experiment."""
    parameter = getattr(getattr(item, "callspec", None), "params", {}).get(FIXTURE)
    return parameter if isinstance(parameter, Parameter) else None


def _get_repetition_number(item: pytest.Item) -> int:
    """Returns the repetition number of a test, from 1; 1 if it is no experiment."""
    parameter = _get_parameter(item)
    return 1 if parameter is None else parameter.number
