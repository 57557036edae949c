"""A broker: assembles its parts, from the configuration to the listener, and shuts them down again.

It starts in this order:

1. the lock of the data directory
2. the event log
3. ZooKeeper
4. topics' settings
5. logs, which are recovered if the last stop was not clean
6. registration
7. listener
8. controller
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence

from kazoo.exceptions import KazooException

from assay.system_under_test.config import BrokerConfig, ConfigError, join_host_port, parse_config
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.public_control import PublicControl
from assay.system_under_test.controller.registration import BrokerIdTaken
from assay.system_under_test.controller.topic_settings import ConfigChanges, VersionedSettings
from assay.system_under_test.controller.traits import select_controller_traits
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.coordinator import Coordinator
from assay.system_under_test.groups.traits import select_group_traits
from assay.system_under_test.handlers import MetadataHandler, make_handlers
from assay.system_under_test.identity import BACK_OFF, RETRIABLE_ERRORS, BrokerError, fill_in_id
from assay.system_under_test.log.directory import DirectoryError, DirectoryMovedError, require_in_place
from assay.system_under_test.log.traits import select_log_traits
from assay.system_under_test.network.limits import Limits
from assay.system_under_test.network.server import Server
from assay.system_under_test.protocol.api import APIS
from assay.system_under_test.protocol.internal import INTERNAL_APIS
from assay.system_under_test.registrar import Registrar
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.traits import select_replication_traits
from assay.system_under_test.runtime import Runtime
from assay.system_under_test.shutdown import BrokerShutdown
from assay.system_under_test.tasks import BackgroundTasks

_log = logging.getLogger("assay.broker")


class BrokerProcess:
    """A broker. ``run`` runs it until it stops; cancelling ``run`` shuts it down cleanly.

    Each layer gets its traits here: the functions of the layer that a historic defect replaces.
    """

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self._runtime = runtime
        self._failed: asyncio.Future[BaseException] = loop.create_future()
        self._background = background = BackgroundTasks(self._fail)
        events = EventLog(
            runtime.event_log,
            runtime.hold,  # stops this process
            config.hold,  # the events after which it stops
            loop.time,
            config.broker_id,
            incarnation=int(runtime.wall_clock() * 1000),
            read_stop_events=self._read_stop_events,
        )
        self._zookeeper = zookeeper = runtime.zookeeper(config.zookeeper, config.session_timeout_ms / 1000)
        self._cache = cache = MetadataCache()
        self._manager = manager = ReplicaManager(
            config,
            runtime,
            zookeeper,
            events,
            background,
            cache.update_leaders,
            cache.find_controller,
            lambda partition, term: self._coordinator.lead(partition, term),
            select_replication_traits(config.defects),
            select_log_traits(config.defects),
        )
        traits = select_controller_traits(config.defects)
        self._controller = Controller(config, runtime, zookeeper, events, background, cache, traits)
        metadata = MetadataHandler(
            config, runtime, zookeeper, manager, cache, lambda topics: self._coordinator.delete_topics(topics)
        )
        self._coordinator = Coordinator(
            config,
            runtime,
            zookeeper,
            manager,
            cache,
            events,
            background,
            metadata.make_offsets_topic,
            select_group_traits(config.defects),
        )
        self._registrar = Registrar(
            config,
            runtime,
            zookeeper,
            events,
            background,
            manager,
            cache,
            self._controller.allow_candidacy,
            traits.recognises_registration,
            traits.stays_registered,
        )
        self._shutdown = BrokerShutdown(config, cache, manager, events)
        self._config_changes = ConfigChanges(zookeeper, self._configure, config.broker_id, manager.throttles.configure)
        handlers = make_handlers(
            zookeeper, manager, self._controller, self._coordinator, metadata, PublicControl(manager, zookeeper, cache)
        )
        self._server = Server(handlers, {**APIS, **INTERNAL_APIS}, Limits.from_config(config))

    async def _configure(self, topic: str, settings: VersionedSettings) -> None:
        await self._manager.replicas.configure(topic, settings.values, settings.zxid)
        self._controller.configure(topic, settings)

    def _read_stop_events(self) -> Sequence[str]:
        """Reads the events after which this process stops itself with SIGSTOP, from the hold file.

        The file is read each time, because a tester changes it while this process runs.
        """
        if self.config.hold_file is None:
            return ()
        try:
            return self._runtime.read_file(self.config.hold_file).decode().splitlines()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise BrokerError(f"hold_file {self.config.hold_file}: {error.strerror or error}") from error

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            error = self._find_reason(error)
            if not isinstance(error, BrokerError):
                _log.error("broker %d stops: %r", self.config.broker_id, error, exc_info=error)
            self._failed.set_result(error)

    def _find_reason(self, error: BaseException) -> BaseException:
        """Returns a ``BrokerError`` for an error of the disk in a data directory that was moved, else ``error``."""
        if isinstance(error, OSError):
            try:
                require_in_place(self._runtime.storage, self.config.data_dir)
            except DirectoryMovedError as moved:
                return BrokerError(str(moved))
        return error

    async def run(self) -> None:
        """Runs the broker until it is cancelled, and then stops it cleanly. Raises ``BrokerError`` if it fails."""
        started = False
        try:
            await self._start()
            started = True
            error = await asyncio.shield(self._failed)  # a cancellation must not cancel ``_failed``
            if isinstance(error, BrokerError):
                raise error
            raise BrokerError(f"broker {self.config.broker_id} stopped: {_describe(error)}") from error
        except Exception as error:
            if not self._failed.done():
                self._failed.set_result(error)  # the start failed: errors of the shutdown are not the reason
            raise
        finally:
            # In a separate task, because asyncio.timeout of Python 3.11 does not work in a cancelled one.
            await asyncio.get_running_loop().create_task(self._stop(started=started))

    async def _start(self) -> None:
        config = self.config
        try:
            await self._zookeeper.connect(config.connect_timeout_ms / 1000)
            await self._retry_on_zookeeper_errors(self._registrar.prepare_zookeeper)
            clean = await self._registrar.claim_directory()  # whether the last process stopped cleanly
            await self._retry_on_zookeeper_errors(self._registrar.set_strays_aside)  # logs that are no longer needed
            await self._retry_on_zookeeper_errors(self._config_changes.read_all)
            await self._manager.replicas.open(clean=clean)
            await self._retry_on_zookeeper_errors(self._registrar.register)
        except (ConnectionError, BrokerIdTaken, DirectoryError) as error:
            raise BrokerError(str(error)) from error
        except KazooException as error:
            raise BrokerError(f"ZooKeeper at {config.zookeeper}: {error!r}") from error
        except OSError as error:
            raise BrokerError(f"the data in {config.data_dir}: {error}") from error
        try:
            await self._server.start(config.host, config.port)
        except OSError as error:
            raise BrokerError(f"listening on {join_host_port(config.host, config.port)}: {error}") from error
        self._registrar.follow_sessions()
        self._manager.start()
        self._controller.start()
        self._coordinator.start()
        self._background.spawn(self._config_changes.run(), "changes of settings")
        self._registrar.handle_missed_changes()
        _log.info("broker %d serves at %s:%d", config.broker_id, config.host, config.port)

    async def _retry_on_zookeeper_errors(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeats an idempotent step of the start until it succeeds, however long ZooKeeper is unavailable."""
        while True:
            try:
                await step()
                return
            except RETRIABLE_ERRORS as error:
                _log.info("starting: %r; it is tried again", error)
                await asyncio.sleep(BACK_OFF)

    async def _stop(self, *, started: bool) -> None:
        """Hands over leadership, flushes the logs, closes the sockets, and last ends the session.

        Raises ``BrokerError`` if the disk fails meanwhile, unless the broker stops because of an earlier failure.
        """
        flushed, had_failed = False, self._failed.done()
        try:
            try:
                if started and not self._failed.done():
                    await self._shutdown.hand_over()
                    await self._manager.replicas.flush()
                    flushed = True
                elif not self._failed.done():
                    self._shutdown.report_early_stop()
            finally:
                # After a failed flush, records may be lost even if the next fsync succeeds.
                await self._close(clean=flushed and not self._failed.done())
        except OSError as error:
            reason = self._find_reason(error)
            if reason is error:
                _log.error("broker %d: not all of its records are on disk: %s", self.config.broker_id, error)
            if not had_failed:
                raise BrokerError(f"broker {self.config.broker_id} could not stop cleanly: {reason}") from error

    async def _close(self, *, clean: bool) -> None:
        await self._server.close()
        await self._background.close()
        try:
            await self._manager.close(flush=clean)
            if clean:
                await self._registrar.leave_directory()  # notes the clean stop
        finally:
            await self._zookeeper.close()


def _describe(error: BaseException) -> str:
    """Returns the error with its path, which ``repr`` omits."""
    path = getattr(error, "filename", None)
    return repr(error) if path is None else f"{error!r}: {path}"


def lock_directory(config: BrokerConfig, runtime: Runtime) -> None:
    """Locks the data directory until this process has ended. Raises ``BrokerError``."""
    try:
        select_log_traits(config.defects).lock(runtime.storage, config.data_dir)
    except DirectoryError as error:
        raise BrokerError(str(error)) from error
    except OSError as error:
        raise BrokerError(f"the data in {config.data_dir} cannot be locked: {error}") from error


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parses ``broker --config FILE [--event-log FILE]``; exits with 2 and a usage line if that fails."""
    parser = argparse.ArgumentParser(prog="python -m assay.system_under_test", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    broker = roles.add_parser("broker", help="run one broker until it gets SIGTERM")
    broker.add_argument("--config", required=True, metavar="FILE", help="JSON, see docs/broker/running_the_broker.md")
    broker.add_argument("--event-log", metavar="FILE", help="where state changes are written, one JSON line each")
    return parser.parse_args(argv)


def _open_nothing() -> None:
    """Default of ``on_directory_locked``, for the simulation, which has no event log file to open."""


async def run_broker(
    runtime: Runtime, argv: Sequence[str], on_directory_locked: Callable[[], None] = _open_nothing
) -> int:
    """Runs a broker process, real or simulated. Returns its exit code.

    The code is 0 after a clean stop, and 1 after an error, which is printed as one line.

    ``on_directory_locked`` opens the event log, and may raise ``OSError``. It is called after this process has locked
    the data directory, because a second process on the same directory must not change the first one's event log.
    """
    options = parse_arguments(argv)
    try:
        try:
            data = runtime.read_file(options.config)
        except OSError as error:
            raise ConfigError(f"configuration {options.config}: {error.strerror or error}") from error
        config = parse_config(data, options.config)
        lock_directory(config, runtime)
        try:
            on_directory_locked()
        except OSError as error:
            raise BrokerError(f"event log {options.event_log}: {error.strerror or error}") from error
        config = await fill_in_id(config, runtime)
        await BrokerProcess(config, runtime).run()
    except (BrokerError, ConfigError) as error:
        print(f"broker: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 0
    return 0
