"""Settings of the broker that a run may set."""

import pytest

from assay.system_under_test.deployment import Broker


def test_how_many_replicas_must_be_in_sync_is_what_the_topic_gets() -> None:
    (topic,) = Broker(min_insync=2).with_setting("min.insync.replicas", "3")._topics
    assert dict(topic.configs)["min.insync.replicas"] == "3"


@pytest.mark.parametrize(
    ("value", "said"),
    [("4", "each partition has 3 replicas"), ("0", "may be 1 to"), ("two", "min.insync.replicas")],
)
def test_a_number_with_which_no_send_succeeds_is_an_error(value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Broker(replication=3).with_setting("min.insync.replicas", value)
