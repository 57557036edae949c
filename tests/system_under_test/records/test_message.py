"""An encoded message decodes to itself, and damage is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.system_under_test.records.message import CorruptMessage, Message, decode, encode

OFFSETS = st.integers(0, 2**63 - 1)
BLOBS = st.none() | st.binary(max_size=60)
MESSAGES = st.builds(
    lambda offset, magic, kind, timestamp, key, value: Message(
        offset, magic, kind if magic else 0, timestamp if magic else None, key, value
    ),
    OFFSETS,
    st.sampled_from([0, 1]),
    st.sampled_from([0, 8]),
    st.none() | st.integers(0, 2**62),
    BLOBS,
    BLOBS,
)


@given(MESSAGES)
def test_a_message_decodes_to_what_was_encoded(message: Message) -> None:
    assert decode(encode(message)) == message


@given(MESSAGES, st.data())
def test_any_flipped_bit_outside_the_offset_is_seen(message: Message, data: st.DataObject) -> None:
    stored = bytearray(encode(message))
    bit = data.draw(st.integers(8 * 8, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptMessage):
        decode(stored)


@given(MESSAGES, st.data())
def test_a_message_cut_short_is_corrupt(message: Message, data: st.DataObject) -> None:
    stored = encode(message)
    with pytest.raises(CorruptMessage):
        decode(stored[: data.draw(st.integers(0, len(stored) - 1))])


def test_bytes_lie_as_the_protocol_guide_says() -> None:
    """Field by field, written out by hand, so that a mistake made both ways does not pass."""
    plain = encode(Message(5, 0, 0, None, b"k", None))
    assert plain.hex() == "00000000000000050000000f908204f60000000000016bffffffff"
    timed = encode(Message(7, 1, 8, 258, None, b"v"))
    assert timed.hex() == ("000000000000000700000017664be6df01080000000000000102ffffffff0000000176")


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_compressed_message_is_a_message(codec: int) -> None:
    message = Message(0, 1, codec, None, None, b"v")
    assert decode(encode(message)) == message


def test_a_codec_that_is_none_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="codec 5"):
        decode(encode(Message(0, 1, 5, None, None, b"v")))


def test_magic_0_takes_no_timestamp_and_magic_2_is_unknown() -> None:
    with pytest.raises(ValueError, match="no place for timestamp"):
        encode(Message(0, 0, 0, 1, None, None))
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        encode(Message(0, 2, 0, None, None, None))
