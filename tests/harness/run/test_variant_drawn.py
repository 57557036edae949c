"""Settings of the system that a mix draws: from the seed and the name alone, in the range, never what was given."""

from hypothesis import given
from hypothesis import strategies as st

from assay.harness.run.systems import apply_settings, coarsen_choices, draw_configuration
from assay.system_under_test.deployment import Broker

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS)
def test_what_is_drawn_can_be_set_and_comes_again(seed: int) -> None:
    drawn = draw_configuration(Broker(), (), seed)
    apply_settings(Broker(), drawn)
    assert draw_configuration(Broker(), (), seed) == drawn
    assert draw_configuration(Broker(), drawn, seed) == drawn, "the command that repeats a run names them"


def test_each_setting_is_drawn_and_now_and_then_left_alone() -> None:
    drawn = [dict(text.split("=") for text in draw_configuration(Broker(), (), seed)) for seed in range(200)]
    for name in Broker().variants:
        values = [one[name] for one in drawn if name in one]
        assert 100 < len(values) < 180, "seven of ten, and six standard deviations either way"
        assert len(set(values)) > 1 or name == "segment.bytes"
    assert len({one.get("replica.lag.time.max.ms") for one in drawn}) > 50


def test_what_a_workload_or_the_command_has_set_stays() -> None:
    own = Broker().with_setting("flush.messages", "40").with_setting("request.timeout.ms", "1234")
    assert not {"flush.messages", "request.timeout.ms"} & set(own.variants)
    for seed in range(20):
        assert "segment.bytes=777" in draw_configuration(own, ("segment.bytes=777",), seed)


def test_a_search_takes_the_ends_of_a_range_and_one_between() -> None:
    assert coarsen_choices(("1", "10..1000", "1000")) == ("1", "10", "100", "1000")
