"""A topic's settings: what they may be, and one clear line for what they may not."""

from __future__ import annotations

import pytest

from assay.system_under_test.config import ConfigError, TopicConfig


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [("delete", True, False), ("compact", False, True), ("compact,delete", True, True), ("delete,compact", True, True)],
)
def test_a_policy_is_to_delete_to_compact_or_both(policy: str, deletes: bool, compacts: bool) -> None:
    config = TopicConfig().override({"cleanup.policy": policy})
    assert (config.deletes, config.compacts) == (deletes, compacts)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cleanup.policy", "shrink", "is one of delete compact compact,delete"),
        ("cleanup.policy", "", "is one of delete"),
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
