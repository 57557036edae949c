"""A topic's settings: what they may be, and one clear line for what they may not."""

from __future__ import annotations

import pytest

from assay.system_under_test.config import ConfigError, TimestampType, TopicConfig


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [
        *(("delete", True, False), ("compact", False, True), ("compact,delete", True, True)),
        *(("delete,compact", True, True), (" compact , delete ", True, True), ("", False, False)),
    ],
)
def test_a_policy_is_to_delete_to_compact_both_or_none(policy: str, deletes: bool, compacts: bool) -> None:
    config = TopicConfig().override({"cleanup.policy": policy})
    assert (config.deletes, config.compacts) == (deletes, compacts)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cleanup.policy", "shrink", "is a list of delete compact"),
        ("cleanup.policy", "delete,", "is a list of delete compact"),
        ("cleanup.policy", "Delete", "is a list of delete compact"),
        ("retention.ms", "1e3", "retention.ms"),
        ("retention.ms", "5.0", "retention.ms"),
        ("unclean.leader.election.enable", "1", "unclean.leader.election.enable"),
        ("unclean.leader.election.enable", "yes", "unclean.leader.election.enable"),
        ("segment.index.bytes", "0", "may be 8 to"),
        ("retention.ms", "-2", "may be -1 to"),
        ("min.cleanable.dirty.ratio", "1.1", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "from 0 to 1"),
        ("delete.retention.ms", "-1", "may be 0 to"),
        ("flush.ms", "-1", "flush.ms may be 0 to"),
        ("flush.ms", "9223372036854775808", "flush.ms"),
        ("message.timestamp.difference.max.ms", "soon", "message.timestamp.difference.max.ms"),
        ("compression.type", "zstd", "is one of producer uncompressed gzip snappy lz4"),
        ("message.format.version", "0.11.0", "is one of 0.8.0 0.8.1 0.8.2 0.9.0 0.10.0 0.10.1 0.10.2"),
        ("message.format.version", "", "is one of 0.8.0"),
        ("log.cleaner", "1", "unknown topic setting 'log.cleaner'"),
    ],
)
def test_what_a_setting_may_not_be_is_said(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=name) as raised:
        TopicConfig().override({name: value})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 1024\t", 1024),
        ("segment.bytes", "+01024", 1024),
        ("retention.ms", "-1 ", -1),
        ("unclean.leader.election.enable", " True", True),
        ("unclean.leader.election.enable", "FALSE ", False),
        ("min.cleanable.dirty.ratio", " .5", 0.5),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("compression.type", " gzip ", "gzip"),
        ("message.timestamp.type", " LogAppendTime", TimestampType.APPEND),
        *((name, "0", 0) for name in ("segment.ms", "index.interval.bytes", "max.message.bytes", "flush.messages")),
    ],
)
def test_a_value_has_the_forms_that_kafka_reads(name: str, text: str, value: object) -> None:
    found = getattr(TopicConfig().override({name: text}), name.replace(".", "_"))
    assert (found, type(found)) == (value, type(value))
