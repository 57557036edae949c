"""Client settings from a properties file, with the names of Kafka's first clients (0.7, 0.8), as typed configurations.

A class is named as in Kafka, if there is an equivalent here, or as ``package.module:name``. Times are in milliseconds
in the file, and in seconds in the configurations.
"""

import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from assay.system_under_test.client.callbacks import BatchHandler, Callbacks, pass_on
from assay.system_under_test.client.config import AsyncProducerConfig, ProducerConfig
from assay.system_under_test.client.partitioner import hash_partitioner
from assay.system_under_test.client.serializer import as_bytes, as_text
from assay.system_under_test.client.zookeeper_groups.config import ConnectorConfig
from assay.system_under_test.records.compression import NAMES

C = TypeVar("C")

_Setting = tuple[str, Callable[[str], Any]]
"""A configuration's field, and the function that parses its value."""


class PropertiesError(ValueError):
    """Raised for an invalid file. The message names the source, the property and the valid values."""


@dataclass(frozen=True)
class ProducerSettings:
    """Arguments of a producer.

    ``producer.type`` decides the class of ``config``: ``AsyncProducerConfig`` for ``async``, ``ProducerConfig`` for
    ``sync``. Handler and callbacks differ from the defaults only with ``async``.
    """

    bootstrap: tuple[str, ...]
    config: ProducerConfig
    handler: BatchHandler = pass_on
    callbacks: Callbacks | None = None


def parse(text: str, source: str) -> dict[str, str]:
    """Parses a file in Java's format. Raises ``PropertiesError`` for a repeated name.

    - ``name=value`` or ``name: value``
    - ``#`` and ``!`` begin comments.
    - A backslash joins a line to the next, or makes the following character literal.
    """
    found: dict[str, str] = {}
    for number, line in _split_lines(text):
        matched = _PROPERTY.match(line)
        assert matched is not None, "any text matches"
        name, value = (_ESCAPED.sub(_unescape, part) for part in matched.groups())
        if name in found:
            raise PropertiesError(f"{source}, line {number}: {name} is set twice")
        found[name] = value
    return found


_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text[1:], 16)) if len(text) == 5 else _CHARACTERS.get(text, text)


def _split_lines(text: str) -> list[tuple[int, str]]:
    """Returns numbers and texts of the logical lines, each joined with its continuation lines."""
    lines: list[tuple[int, str]] = []
    continued = False
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        body = line[:-1] if backslashes % 2 else line
        if continued:
            lines[-1] = lines[-1][0], lines[-1][1] + body
        else:
            lines.append((number, body))
        continued = backslashes % 2 == 1
    return lines


def read_producer_settings(properties: Mapping[str, str], source: str = "properties") -> ProducerSettings:
    """Returns a producer's settings. Raises :class:`PropertiesError`."""
    kinds: dict[str, type[ProducerConfig]] = {"sync": ProducerConfig, "async": AsyncProducerConfig}
    kind = properties.get("producer.type", "sync")
    if kind not in kinds:
        raise PropertiesError(f"{source}: producer.type is {' or '.join(kinds)}, not {kind!r}")
    known = _PRODUCER | (_ASYNC_PRODUCER if kind == "async" else {})
    given = {name: value for name, value in properties.items() if name != "producer.type"}
    elsewhere = sorted(set(given) & set(_ASYNC_PRODUCER) - set(known))
    if elsewhere:
        raise PropertiesError(f"{source}: {elsewhere[0]} is for producer.type=async")
    values = _convert(given, known, source)
    values.setdefault("key_serializer", values.get("value_serializer", as_bytes))
    if kind == "async":  # Kafka's request timeout excludes the time in the queue
        linger = values.get("linger", AsyncProducerConfig.linger)
        values["timeout"] = linger + values.get("timeout", AsyncProducerConfig.timeout)
    arguments = {name: values.pop(name) for name in ("bootstrap", "handler", "callbacks") if name in values}
    if "bootstrap" not in arguments:
        raise PropertiesError(f"{source}: metadata.broker.list is missing: host:port,host:port of any brokers")
    return ProducerSettings(config=_make(kinds[kind], values, source), **arguments)


def read_connector_config(properties: Mapping[str, str], source: str = "properties") -> ConnectorConfig:
    """Returns the settings of a consumer of the old design. Raises :class:`PropertiesError`."""
    values = _convert(properties, _CONSUMER, source)
    if "zookeeper" not in values:
        raise PropertiesError(f"{source}: zookeeper.connect is missing: host:port,host:port")
    # As in Kafka: otherwise a group that migrates from ZooKeeper would find no offsets, and reset its positions.
    values.setdefault("dual_commit", values.get("offsets_storage") == "kafka")
    return _make(ConnectorConfig, values, source)


def _make(kind: Callable[..., C], values: Mapping[str, Any], source: str) -> C:
    try:
        return kind(**values)
    except ValueError as error:
        raise PropertiesError(f"{source}: {error}") from error


def _convert(properties: Mapping[str, str], known: Mapping[str, _Setting], source: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, text in properties.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise PropertiesError(f"{source}: unknown property {name}" + (f"; {near[0]} is known" if near else ""))
        field, convert = known[name]
        if field in values:
            raise PropertiesError(f"{source}: {name} and {names[field]} are two names of one setting")
        try:
            values[field] = convert(text.strip())
        except (ValueError, ImportError, AttributeError) as error:
            raise PropertiesError(f"{source}: {name}={text}: {error}") from error
        names[field] = name
    return values


def _parse_addresses(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or any(re.fullmatch(r"[^:]+:\d+|\[.+\]:\d+", one) is None for one in found):
        raise ValueError("expected host:port,host:port")
    return found


def _parse_count(text: str) -> int:
    if re.fullmatch(r"\d{1,10}", text) is None:
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def _parse_seconds(text: str) -> float:
    return _parse_count(text) / 1000


def _parse_seconds_or_unlimited(text: str) -> float | None:
    """Parses milliseconds; -1 means no limit."""
    return None if text == "-1" else _parse_seconds(text)


def _choose_from(meanings: Mapping[str, Any]) -> Callable[[str], Any]:
    """Returns a parser for a setting that allows only these words. It returns the word's meaning."""

    def convert(text: str) -> Any:
        if text not in meanings:
            raise ValueError(f"it is one of {' '.join(meanings)}")
        return meanings[text]

    return convert


def _resolve_from(known: Mapping[str, Any]) -> Callable[[str], Any]:
    """Returns a parser for a name in ``known`` or ``package.module:name``. It instantiates a class from a module."""

    def resolve(text: str) -> Any:
        if text in known:
            return known[text]
        if ":" not in text:
            raise ValueError(f"expected package.module:name, or one of {' '.join(known)}")
        found = pkgutil.resolve_name(text)
        return found() if isinstance(found, type) else found

    return resolve


def _parse_text(text: str) -> str:
    if not text:
        raise ValueError("it must not be empty")
    return text


_SWITCH: Final = _choose_from({"true": True, "false": False})
_CODECS: Final = {0: "none", **NAMES}
_CODEC: Final = _choose_from(
    {name: number for number, name in _CODECS.items()} | {str(number): number for number in _CODECS}
)
_ACKS: Final = _choose_from({"-1": -1, "all": -1, "0": 0, "1": 1})
_SERIALIZER: Final = _resolve_from(
    {"kafka.serializer.DefaultEncoder": as_bytes, "kafka.serializer.StringEncoder": as_text}
)
_PARTITIONER: Final = _resolve_from({"kafka.producer.DefaultPartitioner": hash_partitioner})

_PRODUCER: Final[dict[str, _Setting]] = {
    **dict.fromkeys(("metadata.broker.list", "broker.list", "bootstrap.servers"), ("bootstrap", _parse_addresses)),
    **dict.fromkeys(("request.required.acks", "acks"), ("acks", _ACKS)),
    "request.timeout.ms": ("timeout", _parse_seconds),
    **dict.fromkeys(("message.send.max.retries", "retries"), ("retries", _parse_count)),
    "retry.backoff.ms": ("retry_back_off", _parse_seconds),
    **dict.fromkeys(("compression.codec", "compression.type"), ("codec", _CODEC)),
    "serializer.class": ("value_serializer", _SERIALIZER),
    "key.serializer.class": ("key_serializer", _SERIALIZER),
    "partitioner.class": ("partitioner", _PARTITIONER),
    "client.id": ("client_id", _parse_text),
}
_ASYNC_PRODUCER: Final[dict[str, _Setting]] = {
    **dict.fromkeys(("queue.buffering.max.ms", "queue.time"), ("linger", _parse_seconds)),
    **dict.fromkeys(("queue.buffering.max.messages", "queue.size"), ("queue_size", _parse_count)),
    **dict.fromkeys(
        ("queue.enqueue.timeout.ms", "queue.enqueueTimeout.ms"), ("enqueue_timeout", _parse_seconds_or_unlimited)
    ),
    **dict.fromkeys(("batch.num.messages", "batch.size"), ("batch_count", _parse_count)),
    "event.handler": ("handler", _resolve_from({"kafka.producer.async.DefaultEventHandler": pass_on})),
    "callback.handler": ("callbacks", _resolve_from({})),
}
_CONSUMER: Final[Mapping[str, _Setting]] = {
    **dict.fromkeys(("zookeeper.connect", "zk.connect"), ("zookeeper", lambda text: ",".join(_parse_addresses(text)))),
    **dict.fromkeys(("metadata.broker.list", "bootstrap.servers"), ("bootstrap", _parse_addresses)),
    **dict.fromkeys(("group.id", "groupid"), ("group", _parse_text)),
    **dict.fromkeys(("consumer.id", "consumerid"), ("consumer_id", _parse_text)),
    **dict.fromkeys(("zookeeper.session.timeout.ms", "zk.sessiontimeout.ms"), ("session_timeout", _parse_seconds)),
    **dict.fromkeys(
        ("zookeeper.connection.timeout.ms", "zk.connectiontimeout.ms"), ("connection_timeout", _parse_seconds)
    ),
    **dict.fromkeys(("zookeeper.sync.time.ms", "zk.synctime.ms"), ("back_off", _parse_seconds)),
    "offsets.storage": ("offsets_storage", _parse_text),
    "dual.commit.enabled": ("dual_commit", _SWITCH),
    **dict.fromkeys(("auto.commit.enable", "autocommit.enable"), ("auto_commit", _SWITCH)),
    **dict.fromkeys(("auto.commit.interval.ms", "autocommit.interval.ms"), ("auto_commit_interval", _parse_seconds)),
    **dict.fromkeys(("auto.offset.reset", "autooffset.reset"), ("reset", _parse_text)),
    "socket.timeout.ms": ("timeout", _parse_seconds),
    **dict.fromkeys(("fetch.message.max.bytes", "fetch.size"), ("fetch_bytes", _parse_count)),
}
