"""One broker: puts the parts together, from the configuration to the listener, and takes them down again.

Order of a start: ZooKeeper, topics' settings, logs (recovered when the last stop was not clean), registration,
listener, controller.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState

from assay.system_under_test.config import OFFSETS_TOPIC, BrokerConfig, ConfigError, parse
from assay.system_under_test.controller import admin, partition_admin
from assay.system_under_test.controller.auto_create import auto_create, offsets_topic, with_defaults
from assay.system_under_test.controller.config_changes import ConfigChanges
from assay.system_under_test.controller.controller import Controller
from assay.system_under_test.controller.metadata import MetadataCache
from assay.system_under_test.controller.public_control import PublicControl
from assay.system_under_test.controller.registration import IdTaken, register
from assay.system_under_test.controller.shutdown import controlled_shutdown
from assay.system_under_test.controller.term import known_epoch
from assay.system_under_test.controller.topic_settings import TopicSettings
from assay.system_under_test.controller.traits import controller_traits
from assay.system_under_test.events import EventLog
from assay.system_under_test.groups.coordinator import Coordinator
from assay.system_under_test.groups.traits import group_traits
from assay.system_under_test.log import directory
from assay.system_under_test.log.checkpoints import CheckpointError
from assay.system_under_test.log.traits import log_traits
from assay.system_under_test.network.handler import Context, Handler
from assay.system_under_test.network.limits import Limits
from assay.system_under_test.network.server import Server
from assay.system_under_test.protocol import internal
from assay.system_under_test.protocol.api import APIS
from assay.system_under_test.protocol.control import (
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from assay.system_under_test.protocol.errors import ErrorCode
from assay.system_under_test.protocol.fetch import FetchRequest
from assay.system_under_test.protocol.internal import INTERNAL_APIS
from assay.system_under_test.protocol.metadata import MetadataRequest, MetadataResponse
from assay.system_under_test.protocol.offsets import ListOffsetsRequest
from assay.system_under_test.protocol.partition_changes import (
    DescribeReassignmentsRequest,
    ElectPreferredRequest,
    ReassignRequest,
)
from assay.system_under_test.protocol.produce import ProduceRequest
from assay.system_under_test.protocol.schema import Request, request_info
from assay.system_under_test.protocol.topic_changes import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    DescribeConfigsRequest,
)
from assay.system_under_test.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from assay.system_under_test.replication import fetch, offsets, produce
from assay.system_under_test.replication.manager import ReplicaManager
from assay.system_under_test.replication.traits import replication_traits
from assay.system_under_test.runtime import Runtime
from assay.system_under_test.tasks import Background
from assay.system_under_test.zookeeper import paths, znodes

_log = logging.getLogger("assay.broker")

BACK_OFF = 0.1
"""Seconds between tries to register again."""
_ID_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class BrokerError(Exception):
    """The broker cannot start or go on; the message is one line for whoever started it."""


class Broker:
    """See the module. ``run`` is its whole life; cancelling it is a clean shutdown."""

    def __init__(self, config: BrokerConfig, runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self._runtime = runtime
        self._failed: asyncio.Future[BaseException] = loop.create_future()
        self._background = Background(self._fail)
        self._events = EventLog(
            runtime.event_log,
            runtime.hold,
            config.hold,
            loop.time,
            config.broker_id,
            incarnation=int(runtime.wall_clock() * 1000),
            orders=self._hold_orders,
        )
        self._clean_since: int | None = None
        self._registered_in = 0  # the session
        self._zookeeper = runtime.zookeeper(config.zookeeper, config.session_timeout_ms / 1000)
        self._cache = MetadataCache()
        self._manager = ReplicaManager(
            config,
            runtime,
            self._zookeeper,
            self._events,
            self._background,
            self._cache.learn,
            lambda partition, term: self._coordinator.lead(partition, term),
            replication_traits(config.defects),
            log_traits(config.defects),
        )
        self._controller = Controller(
            config,
            runtime,
            self._zookeeper,
            self._events,
            self._background,
            self._cache,
            controller_traits(config.defects),
        )
        self._coordinator = Coordinator(
            config,
            runtime,
            self._zookeeper,
            self._manager,
            self._cache,
            self._events,
            self._background,
            self._make_offsets_topic,
            group_traits(config.defects),
        )
        self._public_control = PublicControl(self._manager, self._zookeeper, self._cache)
        self._config_changes = ConfigChanges(self._zookeeper, self._configure)
        self._server = Server(self._handlers(), {**APIS, **INTERNAL_APIS}, Limits.configured(config))

    async def _configure(self, topic: str, settings: TopicSettings) -> None:
        await self._manager.configure(topic, settings.values, settings.zxid)
        self._controller.configure(topic, settings)

    def _hold_orders(self) -> Sequence[str]:
        """Read anew each time: a tester gives and withdraws them while this process runs."""
        if self.config.hold_file is None:
            return ()
        try:
            return self._runtime.read_file(self.config.hold_file).decode().splitlines()
        except FileNotFoundError:
            return ()

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_result(error)

    async def run(self) -> None:
        """Raises ``BrokerError``; otherwise ends only by cancellation, cleanly."""
        started = False
        try:
            await self._start()
            started = True
            error = await asyncio.shield(self._failed)  # being stopped must not look like a failure
            if isinstance(error, BrokerError):
                raise error
            raise BrokerError(f"broker {self.config.broker_id} stopped: {error!r}") from error
        finally:
            await self._stop(clean=started and not self._failed.done())

    async def _start(self) -> None:
        config = self.config
        try:
            await self._zookeeper.connect(config.connect_timeout_ms / 1000)
            await self._in_spite_of_hiccups(self._prepare_zookeeper)
            await directory.make_root(self._runtime.storage, config.data_dir)
            self._clean_since = await directory.take_clean_marker(self._runtime.storage, config.data_dir)
            await self._claim_directory()
            await self._in_spite_of_hiccups(self._config_changes.read_all)
            await self._manager.open(clean=self._clean_since is not None)
            await self._in_spite_of_hiccups(self._register)
            await self._server.start(config.host, config.port)
        except (ConnectionError, IdTaken, directory.DirectoryError, CheckpointError) as error:
            raise BrokerError(str(error)) from error
        except KazooException as error:
            raise BrokerError(f"ZooKeeper at {config.zookeeper}: {error!r}") from error
        except OSError as error:
            raise BrokerError(f"listening on {config.host}:{config.port}: {error}") from error
        self._zookeeper.add_listener(self._session_changed)
        self._manager.start()
        self._controller.start()
        self._coordinator.start()
        self._background.spawn(self._config_changes.run(), "changes of settings")
        if self._zookeeper.session_id == self._registered_in:
            self._controller.registered()
        else:  # the session ended while nobody listened
            self._session_changed(KazooState.LOST)
            if self._zookeeper.session_id:
                self._session_changed(KazooState.CONNECTED)
        _log.info("broker %d serves at %s:%d", config.broker_id, config.host, config.port)

    async def _in_spite_of_hiccups(self, step: Callable[[], Awaitable[None]]) -> None:
        """A step of the start that may be done twice, again until it gets through: recovery can outlast a session."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.connect_timeout_ms / 1000
        while True:
            try:
                await step()
                return
            except (ConnectionLoss, SessionExpiredError, OperationTimeoutError) as error:
                if loop.time() >= deadline:
                    raise
                _log.info("starting: %r; again", error)
                await asyncio.sleep(BACK_OFF)

    async def _stop(self, *, clean: bool) -> None:
        await self._server.close()
        await self._background.close()
        await self._manager.close(flush=clean)
        if clean:
            assert self._clean_since is not None, "it was registered"
            await directory.write_clean_marker(self._runtime.storage, self._clean_since, self.config.data_dir)
        await self._zookeeper.close()

    async def _claim_directory(self) -> None:
        storage, where = self._runtime.storage, self.config.data_dir
        found = directory.read_meta_properties(storage, where)
        if found is not None and found.broker_id != self.config.broker_id:
            raise BrokerError(
                f"data_dir {where} belongs to broker {found.broker_id}, not {self.config.broker_id}; "
                "give this broker a directory of its own"
            )
        if found is None:
            made = directory.MetaProperties(self.config.broker_id, self._cache.cluster_id)
            await directory.write_meta_properties(storage, made, where)

    async def _prepare_zookeeper(self) -> None:
        for path in paths.PERSISTENT:
            if await self._zookeeper.exists(path) is None:
                try:
                    await self._zookeeper.create(path, makepath=True)
                except NodeExistsError:
                    continue  # another broker was faster
        if await self._zookeeper.exists(paths.CLUSTER_ID) is None:
            made = "".join(self._runtime.random.choice(_ID_ALPHABET) for _ in range(22))
            try:
                await self._zookeeper.create(paths.CLUSTER_ID, znodes.encode(znodes.ClusterId(made)))
            except NodeExistsError:
                _log.debug("another broker made the cluster id")
        data, _ = await self._zookeeper.get(paths.CLUSTER_ID)
        self._cache.cluster_id = znodes.decode(znodes.ClusterId, paths.CLUSTER_ID, data).id

    async def _register(self) -> None:
        timestamp = str(int(self._runtime.wall_clock() * 1000))
        clean_since = None if self._manager.damaged else self._clean_since
        self._manager.broker_epoch = await register(
            self._zookeeper, self.config, clean_since=clean_since, timestamp=timestamp
        )
        self._registered_in = self._zookeeper.session_id
        if self._clean_since is None:
            self._clean_since = self._manager.broker_epoch
        self._manager.controller_epoch = max(self._manager.controller_epoch, await known_epoch(self._zookeeper))
        self._events.emit("registered", zxid=self._manager.broker_epoch, clean_since=clean_since)

    def _session_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._manager.broker_epoch = -1
            self._events.emit("session-lost")
        elif state == KazooState.CONNECTED and self._manager.broker_epoch == -1:
            self._background.spawn(self._register_again(), "registration")

    async def _register_again(self) -> None:
        """A new session is a new life to the others, although this process has lost nothing."""
        session = self._zookeeper.session_id
        while self._zookeeper.session_id == session:
            try:
                await self._register()
            except IdTaken as error:
                raise BrokerError(str(error)) from error
            except KazooException as error:
                _log.info("registering again: %r", error)
                await asyncio.sleep(BACK_OFF)
                continue
            self._controller.registered()
            return

    def _handlers(self) -> Mapping[int, Handler]:
        manager, zookeeper = self._manager, self._zookeeper
        handlers: dict[type[Request[Any]], Handler] = {
            internal.LeaderAndIsrRequest: lambda request, _: manager.leader_and_isr(request),
            internal.StopReplicaRequest: lambda request, _: manager.stop_replica(request),
            internal.UpdateMetadataRequest: self._update_metadata,
            internal.ReplicaFetchRequest: partial(fetch.replica_fetch, manager),
            internal.EpochEndRequest: partial(offsets.epoch_end, manager),
            internal.EndOffsetsRequest: partial(offsets.end_offsets, manager, zookeeper),
            internal.LogEndRequest: partial(offsets.log_end, manager),
            ProduceRequest: partial(produce.produce, manager),
            FetchRequest: partial(fetch.fetch, manager, zookeeper),
            ListOffsetsRequest: partial(offsets.list_offsets, manager, zookeeper),
            MetadataRequest: self._metadata,
            LeaderAndIsrRequest: self._public_control.leader_and_isr,
            StopReplicaRequest: self._public_control.stop_replica,
            UpdateMetadataRequest: self._public_control.update_metadata,
            ControlledShutdownRequest: partial(controlled_shutdown, self._controller),
            CreatePartitionsRequest: partial(admin.create_partitions, self._controller),
            AlterConfigsRequest: partial(admin.alter_configs, self._controller),
            DescribeConfigsRequest: partial(admin.describe_configs, self._controller),
            ElectPreferredRequest: partial(partition_admin.elect_preferred, self._controller),
            ReassignRequest: partial(partition_admin.reassign, self._controller),
            DescribeReassignmentsRequest: partial(partition_admin.describe_reassignments, self._controller),
            CreateTopicsRequest: partial(admin.create_topics, self._controller),
            DeleteTopicsRequest: partial(admin.delete_topics, self._controller),
            **self._coordinator.handlers(),
        }
        return {request_info(request).key: handler for request, handler in handlers.items()}

    async def _metadata(self, request: MetadataRequest, context: Context) -> MetadataResponse:
        response = self._cache.answer(request, context)
        if self.config.auto_create_topics_enable:
            brokers = [broker.broker_id for broker in self._cache.brokers()]
            for topic in response.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    if topic.topic == OFFSETS_TOPIC:
                        await self._make_offsets_topic()
                        topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE
                        continue
                    wanted = with_defaults(topic.topic, self.config, brokers)
                    topic.error_code = await auto_create(
                        self._zookeeper, self.config, wanted, brokers, self._runtime.random
                    )
        return response

    async def _make_offsets_topic(self) -> None:
        """Once enough brokers live; until then there are no groups."""
        brokers = [broker.broker_id for broker in self._cache.brokers()]
        if len(brokers) >= self.config.offsets_topic_replication_factor:
            wanted = offsets_topic(OFFSETS_TOPIC, self.config)
            await auto_create(self._zookeeper, self.config, wanted, brokers, self._runtime.random)

    async def _update_metadata(self, request: internal.UpdateMetadataRequest, _: Context) -> UpdateMetadataResponse:
        code = ErrorCode.STALE_CONTROLLER_EPOCH
        if self._manager.obey("update-metadata", request.controller_id, request.controller_epoch, request.broker_epoch):
            self._cache.update(request)
            code = ErrorCode.NONE
        return UpdateMetadataResponse(error_code=code)


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """``broker --config FILE [--event-log FILE]``; exits with 2 and a usage line otherwise."""
    parser = argparse.ArgumentParser(prog="python -m assay.system_under_test", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    broker = roles.add_parser("broker", help="run one broker until it is told to stop (SIGTERM)")
    broker.add_argument("--config", required=True, metavar="FILE", help="JSON, see assay.system_under_test.config")
    broker.add_argument("--event-log", metavar="FILE", help="where state changes are written, one JSON line each")
    return parser.parse_args(argv)


async def entry(runtime: Runtime, argv: Sequence[str]) -> int:
    """The process itself, in every world. Its exit code: 0 after a clean stop, 1 after one clear line."""
    options = arguments(argv)
    try:
        try:
            data = runtime.read_file(options.config)
        except OSError as error:
            raise ConfigError(f"configuration {options.config}: {error.strerror or error}") from error
        broker = Broker(parse(data, options.config), runtime)
        await broker.run()
    except (BrokerError, ConfigError) as error:
        print(f"broker: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 0
    return 0
